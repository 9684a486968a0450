//! Instants as the files write them.

use jiff::Timestamp;

/// Reads RFC 3339 with a zone, and nothing that merely resembles it: jiff alone would also take a space
/// for the `T`, leave out seconds, or follow a time zone's name.
///
/// A leap second is read as the second before it, so a limit never moves later.
pub(crate) fn parse_rfc3339(text: &str) -> Result<Timestamp, &'static str> {
    const FORM: &str = "expected an RFC 3339 time with a zone, as `2026-12-31T23:59:59Z` or with `+02:00`";
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let rest = shape.strip_prefix("0000-00-00T00:00:00").ok_or(FORM)?;
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => {
            let zone = fraction.trim_start_matches('0');
            let digits = fraction.len().saturating_sub(zone.len());
            if digits == 0 || digits > 9 {
                return Err("expected one to nine digits after the point of the seconds");
            }
            zone
        }
        None => rest,
    };
    match zone {
        "Z" | "+00:00" | "-00:00" => {}
        "" => return Err("the time carries no zone; end it with `Z` or an offset as `+02:00`"),
        _ => return Err(FORM),
    }
    text.parse().map_err(|_| "expected a time that exists, before 9999-12-30T22:00:00Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pw_05_times_need_a_zone_and_must_exist() {
        let read = |text: &str| parse_rfc3339(text).map(|time| time.to_string());
        for (text, utc) in [
            ("2026-12-31T23:59:59Z", "2026-12-31T23:59:59Z"),
            ("2026-12-31T23:59:59+02:00", "2026-12-31T21:59:59Z"),
            ("2026-12-31T23:59:59.5-02:30", "2027-01-01T02:29:59.5Z"),
            ("2026-12-31T23:59:59-00:00", "2026-12-31T23:59:59Z"),
            ("2026-12-31T23:59:59.123456789Z", "2026-12-31T23:59:59.123456789Z"),
            ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59Z"),
            ("2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("9999-12-30T21:59:59Z", "9999-12-30T21:59:59Z"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(utc), "{text}");
        }
        for text in [
            "2026-12-31T23:59:59",
            "2026-12-31",
            "2026-12-31 23:59:59Z",
            "2026-12-31T23:59Z",
            "2026-12-31T23:59:59z",
            "2026-12-31t23:59:59Z",
            "2026-12-31T23:59:59+02",
            "2026-12-31T23:59:59+0200",
            "2026-12-31T23:59:59+02:00[Europe/Berlin]",
            "2026-12-31T23:59:59.Z",
            "2026-12-31T23:59:59.0123456789Z",
            "2026-02-30T00:00:00Z",
            "2027-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-12-31T24:00:00Z",
            "2026-12-31T23:59:61Z",
            "9999-12-31T23:59:59Z",
            "+002026-12-31T23:59:59Z",
            "٢٠٢٦-12-31T23:59:59Z",
            "",
        ] {
            assert!(read(text).is_err(), "{text} {:?}", read(text));
        }
    }

    #[test]
    fn a_refused_time_says_what_it_lacks() {
        for (text, words) in [
            ("2026-12-31T23:59:59.Z", "one to nine digits"),
            ("2026-12-31T23:59:59.0123456789Z", "one to nine digits"),
            ("2026-12-31T23:59:59", "carries no zone"),
            ("2026-12-31T23:59:59.5", "carries no zone"),
            ("2026-12-31 23:59:59Z", "expected an RFC 3339 time"),
            ("2026-12-31T23:59:59Europe/Berlin", "expected an RFC 3339 time"),
            ("2026-02-30T00:00:00Z", "a time that exists"),
        ] {
            let refusal = parse_rfc3339(text).unwrap_err();
            assert!(refusal.contains(words), "{text}: {refusal}");
        }
    }
}
