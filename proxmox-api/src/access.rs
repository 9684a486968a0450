//! What the token may do.

use std::collections::BTreeMap;

use crate::{
    client::Client,
    error::Error,
    wire::{Field, Form, Path},
};

/// The privileges of a token by path.
///
/// PVE lists `/`, its top-level paths and every path an entry of the access list names. On a path that is not listed
/// the token has what the nearest listed one above it passes down.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    /// By path, then by privilege: whether it also holds below the path.
    pub paths: BTreeMap<String, BTreeMap<String, Field<bool>>>,
    /// Paths whose privileges could not be read.
    pub skipped: usize,
}

impl Permissions {
    /// Whether there are none at all: what a token with privilege separation and no rights of its own has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.skipped == 0 && self.paths.values().all(BTreeMap::is_empty)
    }

    /// Whether the token has the privilege on any path.
    #[must_use]
    pub fn holds_anywhere(&self, privilege: &str) -> bool {
        self.paths.values().any(|here| here.contains_key(privilege))
    }

    /// Whether the token has the privilege on the path, by what PVE listed. The rights on a pool's members are listed
    /// under the members.
    #[must_use]
    pub fn has(&self, path: &str, privilege: &str) -> bool {
        if let Some(here) = self.paths.get(path) {
            return here.contains_key(privilege);
        }
        let mut above = path;
        while let Some((parent, _)) = above.rsplit_once('/') {
            above = if parent.is_empty() { "/" } else { parent };
            if let Some(privileges) = self.paths.get(above) {
                return privileges.get(privilege) == Some(&Field::Value(true));
            }
            if parent.is_empty() {
                break;
            }
        }
        false
    }
}

impl Client {
    /// What the token may do (`GET /access/permissions`; any token, about itself; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn permissions(&self) -> Result<Permissions, Error> {
        self.permissions_with(Form::new()).await
    }

    /// What the token may do on one path, `/vms/100` (`GET /access/permissions?path=…`; any token, about itself; PVE
    /// 7 to 9).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn permissions_on(&self, path: &str) -> Result<Permissions, Error> {
        self.permissions_with(Form::new().put("path", path)).await
    }

    async fn permissions_with(&self, query: Form) -> Result<Permissions, Error> {
        let path = Path::of("access").word("permissions");
        self.read(path, query).await?.record(|data| {
            let mut permissions = Permissions::default();
            for path in data.keys() {
                match data.record(path) {
                    Some(privileges) => {
                        let by_name = privileges.keys().map(|name| (name.to_owned(), privileges.flag(name)));
                        permissions.paths.insert(path.to_owned(), by_name.collect());
                    }
                    None => permissions.skipped += 1,
                }
            }
            Ok(permissions)
        })
    }
}
