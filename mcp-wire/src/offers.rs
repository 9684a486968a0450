//! What a server offers beyond tools. A capability is declared if and only if its methods work.

use serde_json::{Map, Value, json};

use crate::{Era, input::TASKS_EXTENSION};

/// What the embedder's service answers beyond tools. Nothing by default: then the resource and prompt lists are
/// empty and answered by this crate, and the other methods do not exist.
///
/// What also needs something kept between requests is not said here; it is turned on by giving a transport a
/// [`Stateful`](crate::Stateful).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "these are the protocol's independent capabilities")]
pub struct Offers {
    pub(crate) resources: bool,
    pub(crate) prompts: bool,
    pub(crate) completions: bool,
    pub(crate) asks: bool,
    pub(crate) changes: Changes,
    pub(crate) logging: bool,
    pub(crate) tasks: bool,
    /// Whether legacy clients have a session, which carries what they are told between requests.
    pub(crate) sessions: bool,
}

/// What a server tells clients about unasked, when it happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "these are the protocol's independent capabilities")]
pub struct Changes {
    /// That `tools/list` has changed.
    pub tools: bool,
    /// That `prompts/list` has changed.
    pub prompts: bool,
    /// That `resources/list` has changed.
    pub resources: bool,
    /// That a resource the client named has changed.
    pub updates: bool,
}

impl Changes {
    /// All of them.
    pub const ALL: Self = Self { tools: true, prompts: true, resources: true, updates: true };

    pub(crate) const fn any(self) -> bool {
        self.tools || self.prompts || self.resources || self.updates
    }
}

impl Offers {
    /// Nothing beyond tools.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            resources: false,
            prompts: false,
            completions: false,
            asks: false,
            changes: Changes { tools: false, prompts: false, resources: false, updates: false },
            logging: false,
            tasks: false,
            sessions: false,
        }
    }

    /// The service answers `resources/list`, `resources/templates/list` and `resources/read`.
    #[must_use]
    pub const fn resources(mut self) -> Self {
        self.resources = true;
        self
    }

    /// The service answers `prompts/list` and `prompts/get`.
    #[must_use]
    pub const fn prompts(mut self) -> Self {
        self.prompts = true;
        self
    }

    /// The service answers `completion/complete`.
    #[must_use]
    pub const fn completions(mut self) -> Self {
        self.completions = true;
        self
    }

    /// The service may answer [`Reply::InputRequired`](crate::Reply::InputRequired); what comes with the repeated
    /// request is then read, and ignored otherwise.
    #[must_use]
    pub const fn asks(mut self) -> Self {
        self.asks = true;
        self
    }

    /// Whether changes reach clients of that era.
    pub(crate) const fn tells(self, era: Era) -> Changes {
        if era.is_modern() || self.sessions { self.changes } else { Self::new().changes }
    }

    /// The capabilities to declare in that era.
    pub(crate) fn capabilities(self, era: Era) -> Value {
        let tells = self.tells(era);
        let with = |flags: &[(&str, bool)]| {
            let set = flags.iter().filter(|(_, on)| *on).map(|(key, _)| ((*key).to_owned(), json!(true)));
            Value::Object(set.collect::<Map<_, _>>())
        };
        let mut declared = json!({
            "tools": with(&[("listChanged", tells.tools)]),
            "resources": with(&[("listChanged", tells.resources), ("subscribe", tells.updates)]),
            "prompts": with(&[("listChanged", tells.prompts)]),
        });
        if self.completions {
            declared["completions"] = json!({});
        }
        if self.logging && (era.is_modern() || self.sessions) {
            declared["logging"] = json!({});
        }
        if self.tasks && era.is_modern() {
            declared["extensions"] = json!({TASKS_EXTENSION: {}});
        }
        declared
    }
}
