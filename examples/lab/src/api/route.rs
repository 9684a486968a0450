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
    facts::paths().iter().filter(|(_, methods)| methods.contains_key(method)).find_map(|(template, _)| {
        let wanted: Vec<&str> = template.split('/').collect();
        if wanted.len() != found.len() {
            return None;
        }
        let mut captured = BTreeMap::new();
        for (want, have) in wanted.iter().zip(&found) {
            match want.strip_prefix('{').and_then(|want| want.strip_suffix('}')) {
                Some(name) if !have.is_empty() => {
                    captured.insert(name.to_owned(), (*have).to_owned());
                }
                _ if want == have => {}
                _ => return None,
            }
        }
        Some(Route { template, captured })
    })
}
