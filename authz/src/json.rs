//! A strict reader for small configuration files: duplicate keys and unknown fields are faults, every
//! value knows its line, column and path, and a caller reports all faults of a file in one pass.
//!
//! Syntax is judged by `serde_json`; this module only keeps what a typed deserialiser throws away. It is
//! public because an embedder's own configuration deserves the same treatment.

use std::collections::BTreeSet;
use std::fmt;

use crate::names::escape_untrusted;

/// The largest file read, in bytes.
pub const MAX_FILE_BYTES: usize = 4 * 1024 * 1024;
/// The deepest nesting read.
pub const MAX_DEPTH: usize = 32;
/// The most findings of one kind kept for one file; one more says that there are more.
pub const MAX_FINDINGS: usize = 100;

/// Something that keeps a file from being loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileProblem {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// Where in the document, as `$.tokens.reader.tools[0]`.
    pub path: String,
    /// What is wrong and what is expected.
    pub message: String,
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}, {}: {}", self.line, self.column, self.path, self.message)
    }
}

impl std::error::Error for FileProblem {}

/// Something an operator should look at; the file loads all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// Where in the document, as `$.waivers[0].ops[0]`.
    pub path: String,
    /// What is odd and what it means.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}, {}: {}", self.line, self.column, self.path, self.message)
    }
}

/// A parsed file, with the faults that need no schema to be seen.
#[derive(Debug)]
pub struct Document<'t> {
    text: &'t str,
    root: Node,
    duplicates: Vec<FileProblem>,
}

/// A place in the text: the byte offset from 0, line and column from 1. Kept while scanning, because
/// counting lines for every finding would take quadratic time on a hostile file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pos {
    pub(crate) offset: usize,
    line: usize,
    column: usize,
}

/// One value and where it stands; the end is a byte offset, exclusive.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) start: Pos,
    pub(crate) end: usize,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Null,
    Bool(bool),
    Number,
    Text(String),
    Array(Vec<Node>),
    Object(Vec<Member>),
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) key: String,
    pub(crate) start: Pos,
    pub(crate) value: Node,
}

impl<'t> Document<'t> {
    /// Parses a file.
    ///
    /// # Errors
    /// One problem when the bytes are no JSON text this module reads. Duplicate keys are reported by
    /// [`Document::findings`], with everything else.
    pub fn parse(bytes: &'t [u8]) -> Result<Document<'t>, FileProblem> {
        let whole = |message: String| FileProblem { line: 1, column: 1, path: "$".to_owned(), message };
        if bytes.len() > MAX_FILE_BYTES {
            return Err(whole(format!(
                "the file has {} bytes; expected at most {MAX_FILE_BYTES}",
                bytes.len()
            )));
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let before = String::from_utf8_lossy(bytes.get(..error.valid_up_to()).unwrap_or_default());
            let mut scanner = Scanner::new(&before);
            while scanner.peek().is_some() {
                scanner.step();
            }
            scanner.problem(scanner.at, "expected UTF-8 text".to_owned())
        })?;
        if text.starts_with('\u{feff}') {
            return Err(whole("the file starts with a byte order mark; save it as UTF-8 without one".into()));
        }
        if text.trim().is_empty() {
            return Err(whole("the file is empty; expected a JSON object".into()));
        }
        if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text) {
            let message = error.to_string();
            let message = message.split(" at line ").next().unwrap_or_default();
            return Err(FileProblem {
                line: error.line().max(1),
                column: error.column().max(1),
                path: "$".to_owned(),
                message: format!("expected JSON: {message}"),
            });
        }
        let mut scanner = Scanner::new(text);
        let root = scanner.value()?;
        Ok(Document { text, root, duplicates: scanner.duplicates })
    }

    /// The root value.
    pub fn root(&self) -> At<'_> {
        At { node: &self.root, path: "$".to_owned() }
    }

    /// A collector for this file's findings, already holding its duplicate keys.
    pub fn findings(&self) -> Findings<'t> {
        let mut findings = Findings { text: self.text, problems: Vec::new(), warnings: Vec::new() };
        for duplicate in &self.duplicates {
            findings.push(duplicate.clone());
        }
        findings
    }
}

/// A value of a document together with its path.
#[derive(Debug, Clone)]
pub struct At<'d> {
    pub(crate) node: &'d Node,
    path: String,
}

impl<'d> At<'d> {
    /// The path, as `$.tokens.reader`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether the value is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self.node.kind, Kind::Null)
    }

    /// Whether the value is an array.
    pub fn is_array(&self) -> bool {
        matches!(self.node.kind, Kind::Array(_))
    }

    /// The JSON type, for messages.
    pub fn type_name(&self) -> &'static str {
        match self.node.kind {
            Kind::Null => "null",
            Kind::Bool(_) => "a boolean",
            Kind::Number => "a number",
            Kind::Text(_) => "a string",
            Kind::Array(_) => "an array",
            Kind::Object(_) => "an object",
        }
    }

    /// The string, or a problem.
    pub fn text(&self, findings: &mut Findings<'_>) -> Option<&'d str> {
        match &self.node.kind {
            Kind::Text(text) => Some(text),
            _ => self.wrong_type(findings, "a string"),
        }
    }

    /// The boolean, or a problem.
    pub fn bool(&self, findings: &mut Findings<'_>) -> Option<bool> {
        match &self.node.kind {
            Kind::Bool(value) => Some(*value),
            _ => self.wrong_type(findings, "a boolean"),
        }
    }

    /// The whole number from 0 to `u64::MAX`, written in plain digits, or a problem.
    pub fn number(&self, findings: &mut Findings<'_>) -> Option<u64> {
        let Kind::Number = self.node.kind else { return self.wrong_type(findings, "a whole number") };
        let number =
            findings.text.get(self.node.start.offset..self.node.end).and_then(|text| text.parse().ok());
        if number.is_none() {
            findings.problem(self, "expected a whole number in plain digits, not negative");
        }
        number
    }

    /// The elements, or a problem.
    pub fn items(&self, findings: &mut Findings<'_>) -> Option<Vec<At<'d>>> {
        match &self.node.kind {
            Kind::Array(items) => Some(
                items
                    .iter()
                    .enumerate()
                    .map(|(index, node)| At { node, path: format!("{}[{index}]", self.path) })
                    .collect(),
            ),
            _ => self.wrong_type(findings, "an array"),
        }
    }

    /// The members under their keys, in file order, or a problem. Of a key that stands twice the first.
    pub fn members(&self, findings: &mut Findings<'_>) -> Option<Vec<(&'d str, At<'d>)>> {
        match &self.node.kind {
            Kind::Object(members) => {
                let mut seen = BTreeSet::new();
                Some(
                    members
                        .iter()
                        .filter(|member| seen.insert(member.key.as_str()))
                        .map(|member| {
                            let path = child_path(&self.path, &member.key);
                            (member.key.as_str(), At { node: &member.value, path })
                        })
                        .collect(),
                )
            }
            _ => self.wrong_type(findings, "an object"),
        }
    }

    /// The members, to be taken out by name, or a problem.
    pub fn fields(&self, findings: &mut Findings<'_>) -> Option<Fields<'d>> {
        self.members(findings).map(|members| Fields { of: self.clone(), members, known: Vec::new() })
    }

    fn wrong_type<T>(&self, findings: &mut Findings<'_>, expected: &str) -> Option<T> {
        findings.problem(self, format!("expected {expected}, found {}", self.type_name()));
        None
    }
}

/// The members of one object, taken out by name; what nobody took is a problem.
#[derive(Debug)]
pub struct Fields<'d> {
    of: At<'d>,
    members: Vec<(&'d str, At<'d>)>,
    known: Vec<&'static str>,
}

impl<'d> Fields<'d> {
    /// The field, if the file has it.
    pub fn take(&mut self, name: &'static str) -> Option<At<'d>> {
        self.known.push(name);
        let index = self.members.iter().position(|(key, _)| *key == name)?;
        Some(self.members.remove(index).1)
    }

    /// The field, if the file has it and it is not `null`.
    pub fn optional(&mut self, name: &'static str) -> Option<At<'d>> {
        self.take(name).filter(|at| !at.is_null())
    }

    /// The field, or a problem that it is missing.
    pub fn required(&mut self, name: &'static str, findings: &mut Findings<'_>) -> Option<At<'d>> {
        let field = self.take(name);
        if field.is_none() {
            findings.problem(&self.of, format!("the field `{name}` is missing"));
        }
        field
    }

    /// Reports every field nobody asked for.
    pub fn finish(self, findings: &mut Findings<'_>) {
        for (key, at) in &self.members {
            let key = escape_untrusted(key, 64);
            let known = self.known.join("`, `");
            findings.problem(at, format!("the field `{key}` is unknown; expected one of `{known}`"));
        }
    }
}

/// The problems and warnings found so far in one file.
#[derive(Debug)]
pub struct Findings<'t> {
    text: &'t str,
    problems: Vec<FileProblem>,
    warnings: Vec<Warning>,
}

impl Findings<'_> {
    /// Records a problem at a value.
    pub fn problem(&mut self, at: &At<'_>, message: impl Into<String>) {
        let Pos { line, column, .. } = at.node.start;
        self.push(FileProblem { line, column, path: at.path.clone(), message: message.into() });
    }

    /// Records a warning at a value.
    pub fn warn(&mut self, at: &At<'_>, message: impl Into<String>) {
        let mut warning = self.warning_for(at, message);
        if self.warnings.len() == MAX_FINDINGS {
            warning.message = "there are more warnings; these are the first".to_owned();
        }
        if self.warnings.len() <= MAX_FINDINGS {
            self.warnings.push(warning);
        }
    }

    /// A warning at a value, not recorded.
    pub fn warning_for(&self, at: &At<'_>, message: impl Into<String>) -> Warning {
        let Pos { line, column, .. } = at.node.start;
        Warning { line, column, path: at.path.clone(), message: message.into() }
    }

    /// Whether there is no problem so far.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// The value and the warnings, or every problem, in the order of the file.
    ///
    /// # Errors
    /// When at least one problem was recorded, or there is no value.
    pub fn into_result<T>(mut self, value: Option<T>) -> Result<(T, Vec<Warning>), Vec<FileProblem>> {
        match value {
            Some(value) if self.problems.is_empty() => Ok((value, self.warnings)),
            _ => {
                self.problems.sort_by_key(|problem| (problem.line, problem.column));
                Err(self.problems)
            }
        }
    }

    fn push(&mut self, mut problem: FileProblem) {
        if self.problems.len() == MAX_FINDINGS {
            problem.path = "$".to_owned();
            problem.message = "there are more problems; mend the others first".to_owned();
        }
        if self.problems.len() <= MAX_FINDINGS {
            self.problems.push(problem);
        }
    }
}

/// Takes the `version` field, which must be the number 1.
pub(crate) fn require_version_1(fields: &mut Fields<'_>, findings: &mut Findings<'_>) {
    if let Some(at) = fields.required("version", findings)
        && at.number(findings).is_some_and(|version| version != 1)
    {
        findings.problem(&at, "this server reads version 1");
    }
}

fn child_path(parent: &str, key: &str) -> String {
    let plain = !key.is_empty()
        && key.len() <= 128
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    match plain {
        true => format!("{parent}.{key}"),
        false => format!("{parent}[\"{}\"]", escape_untrusted(key, 64)),
    }
}

/// The path of the value being scanned; built into text only when something is wrong there.
#[derive(Debug, Default)]
struct Path(Vec<Segment>);

#[derive(Debug)]
enum Segment {
    Key(String),
    Index(usize),
}

impl Path {
    fn render(&self) -> String {
        self.0.iter().fold("$".to_owned(), |path, segment| match segment {
            Segment::Key(key) => child_path(&path, key),
            Segment::Index(index) => format!("{path}[{index}]"),
        })
    }
}

/// Walks a text that `serde_json` has already accepted.
struct Scanner<'t> {
    text: &'t str,
    at: Pos,
    path: Path,
    duplicates: Vec<FileProblem>,
}

type Scan<T> = Result<T, FileProblem>;

impl<'t> Scanner<'t> {
    fn new(text: &'t str) -> Scanner<'t> {
        let at = Pos { offset: 0, line: 1, column: 1 };
        Scanner { text, at, path: Path::default(), duplicates: Vec::new() }
    }

    fn value(&mut self) -> Scan<Node> {
        self.skip_space();
        let start = self.at;
        if self.path.0.len() > MAX_DEPTH {
            return self.fault(start, format!("nested deeper than {MAX_DEPTH} levels"));
        }
        let kind = match self.peek() {
            Some(b'{') => self.object()?,
            Some(b'[') => self.array()?,
            Some(b'"') => Kind::Text(self.string()?),
            _ => self.scalar()?,
        };
        Ok(Node { start, end: self.at.offset, kind })
    }

    fn object(&mut self) -> Scan<Kind> {
        self.step();
        let mut members: Vec<Member> = Vec::new();
        let mut keys = BTreeSet::new();
        loop {
            self.skip_space();
            match self.peek() {
                Some(b'}') => break,
                Some(b',') => self.step(),
                Some(b'"') => {
                    let start = self.at;
                    let key = self.string()?;
                    self.path.0.push(Segment::Key(key.clone()));
                    if !keys.insert(key.clone()) {
                        let message =
                            format!("the key `{}` stands here twice; keep one", escape_untrusted(&key, 64));
                        self.duplicates.push(self.problem(start, message));
                    }
                    self.skip_space();
                    self.step(); // the colon
                    let value = self.value()?;
                    self.path.0.pop();
                    members.push(Member { key, start, value });
                }
                _ => return self.fault(self.at, "expected a key".to_owned()),
            }
        }
        self.step();
        Ok(Kind::Object(members))
    }

    fn array(&mut self) -> Scan<Kind> {
        self.step();
        let mut items = Vec::new();
        loop {
            self.skip_space();
            match self.peek() {
                Some(b']') => break,
                Some(b',') => self.step(),
                Some(_) => {
                    self.path.0.push(Segment::Index(items.len()));
                    items.push(self.value()?);
                    self.path.0.pop();
                }
                None => return self.fault(self.at, "expected `]`".to_owned()),
            }
        }
        self.step();
        Ok(Kind::Array(items))
    }

    fn string(&mut self) -> Scan<String> {
        let start = self.at;
        self.step();
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    self.step();
                    self.step();
                }
                Some(_) => self.step(),
                None => return self.fault(start, "expected the end of the string".to_owned()),
            }
        }
        self.step();
        let raw = self.text.get(start.offset..self.at.offset).unwrap_or_default();
        // The one thing the first pass does not look at: escapes that form no character.
        match serde_json::from_str(raw) {
            Ok(text) => Ok(text),
            Err(_) => self.fault(start, "the string holds an escape that is no character".to_owned()),
        }
    }

    fn scalar(&mut self) -> Scan<Kind> {
        let start = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+' | b'.')) {
            self.step();
        }
        match self.text.get(start.offset..self.at.offset).unwrap_or_default() {
            "null" => Ok(Kind::Null),
            "true" => Ok(Kind::Bool(true)),
            "false" => Ok(Kind::Bool(false)),
            "" => self.fault(start, "expected a value".to_owned()),
            _ => Ok(Kind::Number),
        }
    }

    fn fault<T>(&self, at: Pos, message: String) -> Scan<T> {
        Err(self.problem(at, message))
    }

    fn problem(&self, at: Pos, message: String) -> FileProblem {
        FileProblem { line: at.line, column: at.column, path: self.path.render(), message }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at.offset).copied()
    }

    /// One byte on. The bytes that continue a character are not counted as columns.
    fn step(&mut self) {
        match self.peek() {
            Some(b'\n') => {
                self.at.line = self.at.line.saturating_add(1);
                self.at.column = 1;
            }
            Some(0x80..=0xbf) => {}
            _ => self.at.column = self.at.column.saturating_add(1),
        }
        self.at.offset = self.at.offset.saturating_add(1);
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r')) {
            self.step();
        }
    }
}

#[cfg(test)]
mod tests;
