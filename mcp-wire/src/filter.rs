//! What a client wants to be told about: the filter of `subscriptions/listen`.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{RpcError, offers::Changes};

/// Most resources or tasks one client may watch.
pub const MAX_WATCHED: usize = 256;

/// What one listener hears.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Changes of lists.
    pub changes: Changes,
    /// Changes of these resources.
    pub resources: BTreeSet<String>,
    /// Changes of these tasks.
    pub tasks: BTreeSet<String>,
}

impl Filter {
    pub(crate) fn parse(params: &Map<String, Value>) -> Result<Self, RpcError> {
        let Some(Value::Object(wanted)) = params.get("notifications") else {
            return Err(RpcError::invalid_params("`params.notifications` must be an object"));
        };
        let flag = |key: &str| match wanted.get(key) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => {
                Err(RpcError::invalid_params(format!("`params.notifications.{key}` must be true or false")))
            }
        };
        let names = |key: &str| {
            let wrong = || {
                let message =
                    format!("`params.notifications.{key}` must be a list of at most {MAX_WATCHED} strings");
                RpcError::invalid_params(message)
            };
            match wanted.get(key) {
                None | Some(Value::Null) => Ok(BTreeSet::new()),
                Some(Value::Array(items)) if items.len() <= MAX_WATCHED => items
                    .iter()
                    .map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong))
                    .collect::<Result<_, _>>(),
                Some(_) => Err(wrong()),
            }
        };
        let resources = names("resourceSubscriptions")?;
        Ok(Self {
            changes: Changes {
                tools: flag("toolsListChanged")?,
                prompts: flag("promptsListChanged")?,
                resources: flag("resourcesListChanged")?,
                updates: !resources.is_empty(),
            },
            resources,
            tasks: names("taskIds")?,
        })
    }

    /// Takes away what is not told at all.
    pub(crate) fn limited_to(mut self, told: Changes) -> Self {
        self.changes.tools &= told.tools;
        self.changes.prompts &= told.prompts;
        self.changes.resources &= told.resources;
        if !told.updates {
            self.resources.clear();
        }
        self.changes.updates = !self.resources.is_empty();
        self
    }

    /// As on the wire.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut out = json!({});
        for (key, on) in [
            ("toolsListChanged", self.changes.tools),
            ("promptsListChanged", self.changes.prompts),
            ("resourcesListChanged", self.changes.resources),
        ] {
            if on {
                out[key] = json!(true);
            }
        }
        for (key, names) in [("resourceSubscriptions", &self.resources), ("taskIds", &self.tasks)] {
            if !names.is_empty() {
                out[key] = json!(names);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_honoured_as_far_as_it_can_be() {
        let wanted = json!({"notifications": {
            "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": false,
            "resourceSubscriptions": ["a:b"], "unheardOf": 1,
        }});
        let filter = Filter::parse(wanted.as_object().unwrap()).unwrap();
        let told = Changes { tools: true, ..Changes::default() };
        assert_eq!(filter.clone().limited_to(told).to_value(), json!({"toolsListChanged": true}));
        assert_eq!(
            filter.limited_to(Changes::ALL).to_value(),
            json!({"toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["a:b"]})
        );
    }

    #[test]
    fn a_filter_of_another_form_is_refused() {
        for wrong in [
            json!({}),
            json!({"notifications": []}),
            json!({"notifications": {"toolsListChanged": "yes"}}),
            json!({"notifications": {"resourceSubscriptions": "a:b"}}),
            json!({"notifications": {"taskIds": [1]}}),
            json!({"notifications": {"taskIds": vec!["x"; MAX_WATCHED + 1]}}),
        ] {
            assert_eq!(Filter::parse(wrong.as_object().unwrap()).unwrap_err().code, -32602, "{wrong}");
        }
    }
}
