//! From a path to an endpoint.

use std::collections::BTreeMap;

use crate::facts;

/// A path that names an endpoint.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) template: &'static str,
    /// The segments of the path that the template has in braces.
    pub(crate) captured: BTreeMap<String, String>,
}

/// The template that a path fits, if the lab has this method for it.
pub(crate) fn find(method: &str, path: &str) -> Option<Route> {
    let found: Vec<&str> = path.split('/').collect();
    facts::paths()
        .iter()
        .filter(|(_, methods)| methods.contains_key(method))
        .find_map(|(template, _)| fit(template, &found))
}

/// A volume id and a network have slashes of their own, so the last segment of these templates takes the rest.
fn takes_the_rest(segment: &str) -> bool {
    matches!(segment, "{volume}" | "{cidr}")
}

fn fit(template: &'static str, found: &[&str]) -> Option<Route> {
    let wanted: Vec<&str> = template.split('/').collect();
    let open = wanted.last().is_some_and(|last| takes_the_rest(last));
    if wanted.len() > found.len() || (!open && wanted.len() != found.len()) {
        return None;
    }
    let mut captured = BTreeMap::new();
    for (index, want) in wanted.iter().enumerate() {
        let have = if open && index + 1 == wanted.len() {
            found[index..].join("/")
        } else {
            found[index].to_owned()
        };
        match want.strip_prefix('{').and_then(|want| want.strip_suffix('}')) {
            Some(name) if !have.is_empty() => {
                captured.insert(name.to_owned(), have);
            }
            _ if **want == *have => {}
            _ => return None,
        }
    }
    Some(Route { template, captured })
}
