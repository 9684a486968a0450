//! Who planned, approved or applied.

/// Whether a token speaks for a person or for a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ActorKind {
    /// A token given to a person; only these may approve.
    Human,
    /// A token given to an agent.
    Agent,
}

/// The holder of a token, as change control sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Actor {
    /// The token's name.
    pub token: String,
    /// The person behind the token. Two tokens of one person count as one person.
    pub person: String,
    /// What the token says its holder is; `None` when it does not say, which never counts as human.
    pub kind: Option<ActorKind>,
}

impl Actor {
    /// An actor; an empty `person` falls back to the token's name.
    #[must_use]
    pub fn new(token: impl Into<String>, person: impl Into<String>, kind: Option<ActorKind>) -> Self {
        let (token, person) = (token.into(), person.into());
        let person = if person.trim().is_empty() { token.clone() } else { person };
        Self { token, person, kind }
    }

    /// True only for a token that says its holder is human.
    #[must_use]
    pub fn is_human(&self) -> bool {
        self.kind == Some(ActorKind::Human)
    }

    /// Whether both actors are, or may be, one person: the same person or the same token, case-folded.
    #[must_use]
    pub fn is_same_person(&self, other: &Self) -> bool {
        fold(&self.person) == fold(&other.person) || fold(&self.token) == fold(&other.token)
    }
}

/// Case folding that does not depend on a letter's neighbours (`str::to_lowercase` treats a final sigma
/// apart) and meets `ß` and `SS`.
fn fold(text: &str) -> String {
    text.trim().chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn human(token: &str, person: &str) -> Actor {
        Actor::new(token, person, Some(ActorKind::Human))
    }

    #[test]
    fn cs_08_people_compare_case_folded() {
        for (a, b) in [("alice", "Alice"), (" alice ", "ALICE"), ("Straße", "STRASSE"), ("ΣΑΣ", "σασ")]
        {
            assert!(human("t1", a).is_same_person(&human("t2", b)), "{a} and {b}");
        }
        assert!(!human("t1", "alice").is_same_person(&human("t2", "bob")));
    }

    #[test]
    fn cs_08_one_token_is_one_person_whatever_it_claims() {
        assert!(human("ops", "alice").is_same_person(&human("OPS", "bob")));
    }

    #[test]
    fn an_absent_person_is_the_token_itself() {
        assert_eq!(human("ops", "  ").person, "ops");
    }

    #[test]
    fn only_a_declared_human_is_human() {
        assert!(human("t", "p").is_human());
        assert!(!Actor::new("t", "p", Some(ActorKind::Agent)).is_human());
        assert!(!Actor::new("t", "p", None).is_human());
    }
}
