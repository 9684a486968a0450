//! `proxmox-api`: whatever a body holds, its readers agree with a plain reading of the same JSON, and an error shows
//! neither the token nor anything a terminal would obey.

use proxmox_api::{Effect, ErrorKind, Field, fuzzing};

use crate::json::Json;

const SECRET: &str = "5ec2e700-1111";

/// The first two bytes are a status, the next up to the first line break a reason phrase, the rest a body.
pub fn json_readers(data: &[u8]) {
    let Some((status, rest)) = data.split_first_chunk::<2>() else { return };
    let line = rest.iter().position(|b| *b == b'\n').unwrap_or(0);
    let (reason, body) = rest.split_at(line);
    answers(body);
    let status = 300 + u16::from_be_bytes(*status) % 300;
    let Some(error) = fuzzing::refused(status, reason, body, SECRET) else { return };
    assert_eq!(error.status(), Some(status));
    fit_to_show(&error);
    assert!(error.message().len() <= 4200 && error.parameter_errors().len() <= 64);
    assert!(!error.message().is_empty(), "{error:?}");
    if (400..=407).contains(&status) || status == 500 {
        assert_eq!(error.effect(), Effect::Refused, "{error:?}");
    }
    if (300..400).contains(&status) || (502..=504).contains(&status) || (596..600).contains(&status) {
        assert_eq!(error.effect(), Effect::Unknown, "{error:?}");
    }
}

fn answers(body: &[u8]) {
    let json = std::str::from_utf8(body).ok().and_then(|text| Json::parse(text.as_bytes()));
    let json = json.filter(|json| !json.repeats_a_key());
    let data = json.as_ref().and_then(|json| json.get("data"));
    match (fuzzing::list(body, SECRET), data) {
        (Ok((rows, skipped)), Some(Json::Array(items))) => {
            let objects: Vec<&Json> = items.iter().filter(|item| matches!(item, Json::Object(_))).collect();
            assert_eq!((rows.len(), skipped), (objects.len(), items.len() - objects.len()));
            for (row, object) in rows.iter().zip(objects) {
                agrees(row, object);
            }
        }
        (Ok(list), Some(other)) => panic!("{list:?} out of {other:?}"),
        (Err(error), Some(Json::Array(_))) => panic!("a list was refused: {error}"),
        (Err(error), _) => {
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Malformed, Effect::Unknown));
            fit_to_show(&error);
        }
        // A body that is no UTF-8, or repeats a key: it is read, and there is nothing to compare.
        (Ok(_), None) => {}
    }
    match (fuzzing::record(body, SECRET), data) {
        (Ok(Some(row)), Some(object @ Json::Object(_))) => agrees(&row, object),
        (Ok(row), Some(other)) => panic!("{row:?} out of {other:?}"),
        (Err(error), Some(Json::Object(_))) => panic!("an object was refused: {error}"),
        (Err(error), _) => fit_to_show(&error),
        (Ok(_), None) => {}
    }
    match fuzzing::upid(body, SECRET) {
        Ok(upid) => assert!(data.is_none_or(|data| data.text() == Some(upid.as_str()))),
        Err(error) => fit_to_show(&error),
    }
}

/// A field through the readers and the same field as JSON.
fn agrees(read: &fuzzing::Read, object: &Json) {
    let Json::Object(members) = object else { return };
    let field = members.iter().find(|(key, _)| key == "f").map(|(_, value)| value);
    assert_eq!(read.text == Field::Absent, field.is_none());
    assert!(read.float.is_none_or(f64::is_finite));
    match field {
        None => assert_eq!((read.flag, read.integer, read.float), (Field::Absent, None, None)),
        Some(Json::Bool(value)) => assert_eq!((read.flag, read.integer), (Field::Value(*value), None)),
        Some(Json::Number(number)) => {
            if let Some(number) = number.as_u64() {
                assert_eq!(read.integer, Some(number));
                let flag = match number {
                    0 => Field::Value(false),
                    1 => Field::Value(true),
                    _ => Field::Unreadable,
                };
                assert_eq!(read.flag, flag);
            }
        }
        Some(Json::Text(text)) => {
            assert_eq!(read.text, Field::Value(text.clone()));
            if let Ok(number) = text.parse::<u64>() {
                assert_eq!(read.integer, Some(number));
            }
        }
        Some(Json::Null | Json::Array(_) | Json::Object(_)) => {
            let nothing = (read.flag, read.integer, read.float, read.text.is_unreadable());
            assert_eq!(nothing, (Field::Unreadable, None, None, true));
        }
    }
}

fn fit_to_show(error: &proxmox_api::Error) {
    let shown = format!("{error}{error:?}{:?}", error.parameter_errors());
    assert!(!shown.contains(SECRET), "{shown}");
    assert!(!error.to_string().chars().any(|c| c.is_control() && c != '\n'), "{error:?}");
}
