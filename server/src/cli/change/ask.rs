//! What is asked of the person at the terminal.

use std::fmt;
use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{ApproveArgs, Failure};
use crate::config::Problem;
use crate::files::{self, Privacy};

/// The environment variable that may hold the token.
const TOKEN_VARIABLE: &str = "PROXWARD_TOKEN";
/// How many of the digest's characters are asked for.
const CODE_LENGTH: usize = 8;

/// The bearer token: from the file, else from the environment, else typed unseen.
pub(super) fn token(file: Option<&Path>) -> Result<Zeroizing<String>, Failure> {
    let problem = |problem: Problem| Failure::Configuration(vec![problem]);
    if let Some(path) = file {
        let bytes = files::read(path, Privacy::Secret, 4096)
            .map_err(|error| problem(Problem::flag(error.to_string())))?;
        let text = Zeroizing::new(
            String::from_utf8(bytes)
                .map_err(|_| problem(Problem::file(path, "is not text: expected one token")))?,
        );
        return Ok(Zeroizing::new(text.trim().to_owned()));
    }
    if let Ok(token) = std::env::var(TOKEN_VARIABLE) {
        return Ok(Zeroizing::new(token.trim().to_owned()));
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(problem(Problem::flag(format!(
            "no token: name a --token-file, set {TOKEN_VARIABLE}, or run this at a terminal"
        ))));
    }
    eprint!("Token: ");
    let hidden = Hidden::new();
    let mut line = Zeroizing::new(String::new());
    let read = stdin.lock().read_line(&mut line);
    drop(hidden);
    eprintln!();
    match read {
        Ok(_) => Ok(Zeroizing::new(line.trim().to_owned())),
        Err(error) => Err(problem(Problem::flag(format!("the token could not be read: {error}")))),
    }
}

/// Keeps the terminal from showing what is typed.
struct Hidden(Option<Termios>);

impl Hidden {
    fn new() -> Self {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin).ok();
        if let Some(mut hidden) = before.clone() {
            hidden.local_modes.remove(LocalModes::ECHO);
            // A terminal that cannot hide what is typed shows it; the person sees that.
            let _ = tcsetattr(&stdin, OptionalActions::Flush, &hidden);
        }
        Self(before)
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, before);
        }
    }
}

/// Why nothing was approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unconfirmed(String);

impl fmt::Display for Unconfirmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Answers questions.
pub(super) trait Answers {
    /// The person's answer, trimmed; `None` when nobody answers.
    fn ask(&mut self, question: &str) -> Option<String>;
}

/// Whoever sits at standard input.
#[derive(Debug, Default)]
pub(super) struct Person {}

impl Answers for Person {
    fn ask(&mut self, question: &str) -> Option<String> {
        eprint!("{question} ");
        let _ = std::io::stderr().flush();
        let mut line = String::new();
        match std::io::stdin().lock().read_line(&mut line) {
            Ok(n) if n > 0 => Some(line.trim().to_owned()),
            _ => None,
        }
    }
}

/// What the server is told when the person confirms what they saw: the digest of the set as it was shown, never of another.
pub(super) fn confirm(
    set: &Value,
    args: &ApproveArgs,
    person: &mut impl Answers,
) -> Result<Value, Unconfirmed> {
    let no = |why: &str| Err(Unconfirmed(why.to_owned()));
    let (Some(id), Some(digest)) = (set["change_set_id"].as_str(), set["digest"].as_str()) else {
        return no("the server's answer names no change set and digest");
    };
    if set["state"] != "planned" {
        return no(&format!(
            "the set is {}, only a planned one can be approved",
            set["state"].as_str().unwrap_or("in no known state")
        ));
    }
    if args.digest.as_ref().is_some_and(|seen| seen != digest) {
        return no("its digest is not the one named with --digest: read the preview above again");
    }
    let mut approval = json!({"change_set_id": id, "digest": digest});
    // What the server does not call harmless is destructive.
    if set["destructive"] == false {
        let agreed = args.yes
            || person
                .ask("Approve exactly this? [yes/no]")
                .is_some_and(|answer| answer.eq_ignore_ascii_case("yes"));
        return if agreed { Ok(approval) } else { no("you did not say yes") };
    }
    if let Some(vmid) = set["target"].as_str().and_then(|target| target.strip_prefix("guest/")) {
        let typed = match args.confirm_vmid {
            Some(number) => Some(number.to_string()),
            None => person.ask("Number of the guest this happens to:"),
        };
        if typed.as_deref() != Some(vmid) {
            return no("that is not the guest's number in the preview");
        }
        approval["confirm_vmid"] = vmid.parse::<u32>().map_or(Value::Null, Value::from);
    }
    let typed = match &args.confirm_code {
        Some(code) => Some(code.clone()),
        None => person.ask(&format!("First {CODE_LENGTH} characters of the digest:")),
    };
    if typed.is_none() || typed.as_deref() != digest.get(..CODE_LENGTH) {
        return no(&format!(
            "that is not how the digest begins; expected its first {CODE_LENGTH} characters"
        ));
    }
    Ok(approval)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Says(Vec<&'static str>);

    impl Answers for Says {
        fn ask(&mut self, _question: &str) -> Option<String> {
            (!self.0.is_empty()).then(|| self.0.remove(0).to_owned())
        }
    }

    fn args() -> ApproveArgs {
        ApproveArgs {
            id: "cs_x".to_owned(),
            confirm_vmid: None,
            confirm_code: None,
            digest: None,
            yes: false,
        }
    }

    fn set() -> Value {
        json!({"change_set_id": "cs_x", "digest": "0123456789abcdef", "state": "planned", "destructive": true,
               "target": "guest/905"})
    }

    #[test]
    fn cs_42_a_destructive_set_needs_the_number_and_the_digests_beginning() {
        let confirmed = confirm(&set(), &args(), &mut Says(vec!["905", "01234567"])).unwrap();
        let expected = json!({"change_set_id": "cs_x", "digest": "0123456789abcdef", "confirm_vmid": 905});
        assert_eq!(confirmed, expected);
        for answers in [
            vec![],
            vec!["905"],
            vec!["906", "01234567"],
            vec!["905", "0123456"],
            vec!["905", "012345678"],
            vec!["905", ""],
            vec!["905", "01234568"],
            vec!["", "01234567"],
            vec!["yes", "yes"],
        ] {
            assert!(confirm(&set(), &args(), &mut Says(answers.clone())).is_err(), "{answers:?}");
        }
    }

    #[test]
    fn flags_answer_instead_of_the_person_and_are_held_to_the_same() {
        let given =
            ApproveArgs { confirm_vmid: Some(905), confirm_code: Some("01234567".to_owned()), ..args() };
        assert!(confirm(&set(), &given, &mut Says(vec![])).is_ok());
        let given = ApproveArgs { confirm_code: Some("89abcdef".to_owned()), ..given };
        assert!(confirm(&set(), &given, &mut Says(vec!["905", "01234567"])).is_err());
        let yes = ApproveArgs { yes: true, ..args() };
        assert!(confirm(&set(), &yes, &mut Says(vec![])).is_err(), "--yes is for what destroys nothing");
        let other = ApproveArgs { digest: Some("f".repeat(16)), ..args() };
        assert!(confirm(&set(), &other, &mut Says(vec!["905", "01234567"])).is_err());
    }

    #[test]
    fn a_set_that_is_not_planned_is_not_asked_about() {
        for state in ["approved", "applied", "expired", ""] {
            let mut set = set();
            set["state"] = state.into();
            assert!(confirm(&set, &args(), &mut Says(vec!["905", "01234567"])).is_err(), "{state}");
        }
    }

    #[test]
    fn what_destroys_nothing_needs_a_yes() {
        let mut set = set();
        set["destructive"] = false.into();
        assert!(confirm(&set, &args(), &mut Says(vec!["yes"])).is_ok());
        assert!(confirm(&set, &args(), &mut Says(vec!["y"])).is_err());
        assert!(confirm(&set, &args(), &mut Says(vec![])).is_err());
    }
}
