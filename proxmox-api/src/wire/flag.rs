use super::Scalar;

/// Reads a boolean as PVE writes it: 0 and 1, as numbers or text, JSON booleans inside `proxmox-support`, Perl's
/// empty string for false, and the words its property strings accept. Anything else is no boolean.
pub(crate) fn flag(value: &Scalar) -> Option<bool> {
    match value {
        Scalar::Bool(value) => Some(*value),
        Scalar::Number(number) => match number.parse::<f64>() {
            Ok(0.0) => Some(false),
            Ok(1.0) => Some(true),
            _ => None,
        },
        Scalar::Text(text) => match text.trim() {
            "" | "0" => Some(false),
            "1" => Some(true),
            word if ["true", "yes", "on"].iter().any(|w| word.eq_ignore_ascii_case(w)) => Some(true),
            word if ["false", "no", "off"].iter().any(|w| word.eq_ignore_ascii_case(w)) => Some(false),
            _ => None,
        },
        Scalar::Null | Scalar::Other => None,
    }
}
