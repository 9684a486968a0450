//! The check of parameters against their schemas, in the order and with the words of PVE.

use std::collections::BTreeMap;

use crate::api::format;
use crate::api::reply::Refusal;
use crate::api::request::{Parameters, Raw};
use crate::facts::{Endpoint, Format, Schema};

const UNKNOWN: &str = "property is not defined in schema and the schema does not allow additional properties";

/// Checked parameters: text, with booleans as `1` and `0`.
pub(crate) type Checked = BTreeMap<String, String>;

/// Merges what the path has into the parameters; the same name with another value is refused.
pub(crate) fn merge(
    mut parameters: Parameters,
    captured: &BTreeMap<String, String>,
) -> Result<Parameters, Refusal> {
    for (name, value) in captured {
        match parameters.insert(name.clone(), Raw::Text(value.clone())) {
            Some(other) if other.display() != *value => {
                let text = "duplicate parameter (already defined in URI) with conflicting values!";
                return Err(Refusal::parameter(name, text));
            }
            _ => {}
        }
    }
    Ok(parameters)
}

/// Checks all parameters of a call and reports all that is wrong.
pub(crate) fn parameters(endpoint: &Endpoint, given: &Parameters) -> Result<Checked, Refusal> {
    let mut errors = BTreeMap::new();
    let mut checked = Checked::new();
    let variant = variant(endpoint, given);
    for (name, raw) in given {
        let own = schema_of(&endpoint.parameters, name).map(|schema| (schema, name.clone()));
        let of_variant =
            || variant.and_then(|(kind, own)| Some((own.get(name)?, format!("oneOf[{kind}].{name}"))));
        let Some((schema, shown)) = own.or_else(of_variant) else {
            errors.insert(name.clone(), UNKNOWN.to_owned());
            continue;
        };
        if let Some(required) = schema.requires.as_ref().filter(|required| !given.contains_key(*required)) {
            errors.insert(required.clone(), format!("missing property required by '{name}'"));
        }
        match scalar(schema, raw).and_then(|value| value_of(schema, &value, name).map(|()| value)) {
            Ok(value) => {
                checked.insert(name.clone(), value);
            }
            Err(text) => {
                errors.insert(shown, text);
            }
        }
    }
    let missing = |schemas: &BTreeMap<String, Schema>, prefix: &str| -> Vec<String> {
        schemas
            .iter()
            .filter(|(name, schema)| schema.optional == 0 && !given.contains_key(*name))
            .map(|(name, _)| format!("{prefix}{name}"))
            .collect()
    };
    let mut all_missing = missing(&endpoint.parameters, "");
    if let Some((kind, own)) = variant {
        all_missing.extend(missing(own, &format!("oneOf[{kind}].")));
    }
    for name in all_missing {
        errors.insert(name, "property is missing and it is not optional".to_owned());
    }
    if errors.is_empty() { Ok(checked) } else { Err(Refusal::Parameters(errors)) }
}

/// The parameters of the variant that a call is, with its name.
fn variant<'a>(
    endpoint: &'a Endpoint,
    given: &Parameters,
) -> Option<(&'a str, &'a BTreeMap<String, Schema>)> {
    let kind = given.get(endpoint.variant.as_ref()?)?.display();
    endpoint.variants.get_key_value(&kind).map(|(kind, own)| (kind.as_str(), own))
}

/// The schema of a name, where `net0` … `net31` have that of `net[n]`.
pub(crate) fn schema_of<'a>(schemas: &'a BTreeMap<String, Schema>, name: &str) -> Option<&'a Schema> {
    if let Some(schema) = schemas.get(name).filter(|_| !name.ends_with("[n]")) {
        return Some(schema);
    }
    let base = name.trim_end_matches(|char: char| char.is_ascii_digit());
    let digits = &name[base.len()..];
    let index: u32 = digits.parse().ok().filter(|index: &u32| index.to_string() == digits)?;
    schemas.get(&format!("{base}[n]")).filter(|_| index <= last_index(base))
}

/// The highest index of an indexed option.
fn last_index(base: &str) -> u32 {
    match base {
        "scsi" | "rng" => 30,
        "virtio" | "hostpci" => 15,
        "sata" => 5,
        "ide" | "serial" => 3,
        "parallel" => 2,
        "usb" => 13,
        "numa" => 7,
        "virtiofs" => 9,
        "mp" | "unused" | "dev" => 255,
        _ => 31,
    }
}

fn scalar(schema: &Schema, raw: &Raw) -> Result<String, String> {
    let kind = schema.kind.as_deref().unwrap_or("string");
    let is_list = matches!(&schema.format, Some(Format::Named(name)) if name.ends_with("-list"));
    match raw {
        Raw::Text(text) => Ok(text.clone()),
        Raw::Bool(value) if kind == "boolean" => Ok(u8::from(*value).to_string()),
        Raw::Bool(value) => Err(format!("type check ('{kind}') failed - got '{value}'")),
        Raw::Many(values) if is_list => Ok(values.join(",")),
        // No element of an array of PVE's can hold a NUL.
        Raw::Many(values) if kind == "array" => Ok(values.join("\0")),
        Raw::Many(_) => Err(format!("type check ('{kind}') failed - got 'ARRAY'")),
        Raw::Object => Err(format!("type check ('{kind}') failed - got 'HASH'")),
    }
}

/// One value against its schema.
fn value_of(schema: &Schema, value: &str, name: &str) -> Result<(), String> {
    let kind = schema.kind.as_deref().unwrap_or("string");
    let typed = match kind {
        "boolean" => matches!(value, "0" | "1"),
        "integer" => is_integer(value),
        "number" => is_number(value),
        _ => true,
    };
    if !typed {
        return Err(format!("type check ('{kind}') failed - got '{value}'"));
    }
    if !schema.matches_pattern(value) {
        return Err("value does not match the regex pattern".to_owned());
    }
    match &schema.format {
        Some(Format::Named(format)) => format::property(format, name, value)
            .unwrap_or_else(|| format::named(format, value))
            .map_err(|text| format!("invalid format - {text}"))?,
        Some(Format::Properties(properties)) => {
            property_string(properties, value, name).map_err(|text| format!("invalid format - {text}"))?;
        }
        None => {}
    }
    if let Some(shortest) = schema.min_length.filter(|shortest| value.chars().count() < *shortest) {
        return Err(format!("value must be at least {shortest} characters long"));
    }
    if let Some(longest) = schema.max_length.filter(|longest| value.chars().count() > *longest) {
        return Err(format!("value may only be {longest} characters long"));
    }
    if kind != "string"
        && let Ok(number) = value.parse::<f64>()
    {
        if let Some(minimum) = schema.minimum.filter(|minimum| number < *minimum) {
            return Err(format!("value must have a minimum value of {minimum}"));
        }
        if let Some(maximum) = schema.maximum.filter(|maximum| number > *maximum) {
            return Err(format!("value must have a maximum value of {maximum}"));
        }
    }
    match &schema.choices {
        Some(choices) if !choices.iter().any(|choice| choice == value) => {
            let all = choices.join(", ");
            Err(format!("value '{value}' does not have a value in the enumeration '{all}'"))
        }
        _ => Ok(()),
    }
}

fn is_integer(value: &str) -> bool {
    let digits = value.strip_prefix(['+', '-']).unwrap_or(value);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_number(value: &str) -> bool {
    let digits = value.strip_prefix(['+', '-']).unwrap_or(value);
    digits.parse::<f64>().is_ok() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// `key=value,key=value`, where one key may be the default one and stand without its name.
fn property_string(properties: &BTreeMap<String, Schema>, text: &str, name: &str) -> Result<(), String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let mut bare = false;
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let (mut key, mut value) = match part.split_once('=') {
            Some((key, value)) if !key.is_empty() && !value.is_empty() => (key.to_owned(), value.to_owned()),
            Some(_) => return Err("missing key in comma-separated list property\n".to_owned()),
            None => {
                let Some((default, _)) = properties.iter().find(|(_, schema)| schema.default_key == 1) else {
                    return Err("value without key, but schema does not define a default key\n".to_owned());
                };
                if bare || found.contains_key(default) {
                    return Err(format!("duplicate key in comma-separated list property: {default}\n"));
                }
                bare = true;
                (default.clone(), part.to_owned())
            }
        };
        if found.contains_key(&key) && part.contains('=') {
            return Err(format!("duplicate key in comma-separated list property: {key}\n"));
        }
        if let Some(schema) = properties.get(&key)
            && let Some(alias) = &schema.alias
        {
            if let Some(key_alias) = &schema.key_alias
                && found.insert(key_alias.clone(), key.clone()).is_some()
            {
                return Err(format!("key alias '{key_alias}' is already defined\n"));
            }
            key.clone_from(alias);
        }
        if properties.get(&key).is_some_and(|schema| schema.kind.as_deref() == Some("boolean")) {
            value = match value.to_ascii_lowercase().as_str() {
                "1" | "on" | "yes" | "true" => "1".to_owned(),
                "0" | "off" | "no" | "false" => "0".to_owned(),
                _ => value,
            };
        }
        found.insert(key, value);
    }
    let mut errors = BTreeMap::new();
    for (key, value) in &found {
        let problem = match properties.get(key).filter(|schema| schema.alias.is_none()) {
            None => Err(UNKNOWN.to_owned()),
            Some(schema) => value_of(schema, value, key),
        };
        if let Err(problem) = problem {
            errors.insert(key.clone(), problem);
        }
    }
    for (key, schema) in properties.iter().filter(|(key, _)| !found.contains_key(*key)) {
        if schema.optional == 0 && schema.alias.is_none() {
            errors.insert(key.clone(), "property is missing and it is not optional".to_owned());
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> =
        errors.iter().map(|(key, problem)| format!("{name}.{key}: {problem}\n")).collect();
    Err(format!("format error\n{}", lines.concat()))
}
