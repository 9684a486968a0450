//! `proxmox-api`: whatever a cluster answers, no guest is lost unnoticed and none is made up.

use proxmox_api::{Error, ErrorKind, Listing, Resource};

use crate::json::Json;

/// Any bytes as the body of `GET /cluster/resources`.
pub fn pve_response(data: &[u8]) {
    let read: Result<Listing<Resource>, Error> = Resource::parse_all(data.to_vec());
    // The client reads bytes that are no UTF-8, so compare what it made of them.
    let text = String::from_utf8_lossy(data);
    let json = Json::parse(text.as_bytes());
    let list = match read {
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Malformed);
            assert!(!error.to_string().chars().any(|c| c.is_control() && c != '\n'), "{error}");
            if let Some(json) = json.filter(|json| !json.repeats_a_key()) {
                assert!(!matches!(json.get("data"), Some(Json::Array(_))), "a list was refused: {error}");
            }
            return;
        }
        Ok(list) => list,
    };
    for resource in &list {
        let guest = resource.kind.guest().is_some();
        assert_eq!(resource.guest().is_some(), guest, "a guest has a node and a number: {resource:?}");
        assert!(resource.cpu.is_none_or(f64::is_finite));
    }
    // A key that stands twice is read as Perl reads it, the last counting; the comparison is not worth that.
    let Some(json) = json.filter(|json| !json.repeats_a_key()) else { return };
    let Some(Json::Array(rows)) = json.get("data") else { panic!("a list out of no list") };
    assert_eq!(list.len() + list.skipped, rows.len(), "every entry is read or counted");
    let plain = |row: &&Json| {
        let text = |name: &str| row.get(name).and_then(Json::text);
        let number = match row.get("vmid") {
            Some(Json::Number(number)) => number.as_u64().is_some_and(|n| (100..=999_999_999).contains(&n)),
            _ => false,
        };
        number && matches!(text("type"), Some("qemu" | "lxc")) && text("node") == Some("pve1")
    };
    let plain = rows.iter().filter(plain).count();
    let guests = list.iter().filter(|resource| resource.guest().is_some()).count();
    assert!(guests >= plain, "{plain} plain guests, {guests} read");
}
