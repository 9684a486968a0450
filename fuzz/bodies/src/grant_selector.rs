//! `authz`: a selector selects what its text says.

use authz::{GuestFacts, GuestKind, Known, Selector, Vmid};

/// A selector, then optionally `\n` and the tags (by `;`), the pool and the number of a guest, each on a line.
pub fn grant_selector(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.split('\n');
    let text = lines.next().unwrap_or_default();
    let Ok(selector) = text.parse::<Selector>() else {
        assert_ne!(text, "*");
        return;
    };
    let shown = selector.to_string();
    assert_eq!(shown.parse(), Ok(selector.clone()), "what is shown reads back");
    assert!(shown == text || text == format!("vmid:{0}-{0}", &shown[5..]), "one spelling, but for n-n");

    let tags: Vec<String> = lines.next().unwrap_or_default().split(';').map(str::to_owned).collect();
    let pool = lines.next().filter(|pool| !pool.is_empty());
    let number: u32 = lines.next().and_then(|number| number.parse().ok()).unwrap_or(600);
    for number in [number, 100, 600, 999_999_999].into_iter().chain(edges(text)) {
        let Some(vmid) = Vmid::new(number) else { continue };
        let guest = GuestFacts {
            cluster: "alpha".into(),
            vmid,
            kind: GuestKind::Lxc,
            name: Some(text.to_owned()),
            tags: Known::Known(tags.clone()),
            pool: Known::Known(pool.map(str::to_owned)),
            protection: Known::Known(false),
        };
        assert_eq!(selector.matches(&guest), selects(text, number, &tags, pool), "{text} for {guest:?}");
        let unread = GuestFacts { tags: Known::Unreadable, pool: Known::Unreadable, ..guest };
        let by_number = text == "*" || text.starts_with("vmid:");
        assert_eq!(selector.matches(&unread), by_number && selects(text, number, &[], None));
        assert_eq!(selector.matches_new(vmid), by_number && selects(text, number, &[], None));
    }
}

/// The ends of a range and their neighbours.
fn edges(text: &str) -> Vec<u32> {
    let numbers = text.strip_prefix("vmid:").unwrap_or_default().split('-');
    numbers
        .filter_map(|n| n.parse::<u32>().ok())
        .flat_map(|n| [n.saturating_sub(1), n, n.saturating_add(1)])
        .collect()
}

fn selects(text: &str, number: u32, tags: &[String], pool: Option<&str>) -> bool {
    let Some((kind, value)) = text.split_once(':') else { return text == "*" };
    match kind {
        "vmid" => {
            let mut ends = value.split('-').map(|end| end.parse::<u32>().expect("a number"));
            let first = ends.next().expect("a first number");
            (first..=ends.next().unwrap_or(first)).contains(&number)
        }
        // One tag that PVE could not have stored makes the whole list untrustworthy.
        "tag" => tags.iter().all(|tag| tag.is_empty() || is_tag(tag)) && tags.iter().any(|tag| tag == value),
        "pool" => pool == Some(value),
        _ => panic!("{kind} is no kind of selector"),
    }
}

fn is_tag(tag: &str) -> bool {
    tag.chars()
        .enumerate()
        .all(|(n, c)| c.is_ascii_alphanumeric() || c == '_' || (n > 0 && "-+.".contains(c)))
}
