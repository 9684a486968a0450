use std::fmt::{Display, Write as _};

use percent_encoding::utf8_percent_encode;

use super::form::ENCODED;
use crate::{
    guest::GuestKind,
    ids::{
        AliasName, HaSid, IpSetMember, IpSetName, NodeName, RuleName, SecurityGroup, SnapName, StorageId,
        Upid, Vmid, Volid,
    },
};

/// A value that may become one segment of a path. Implemented for parsed ids only, so that no free text can.
pub(crate) trait Segment: Display {}

impl Segment for AliasName {}
impl Segment for GuestKind {}
impl Segment for HaSid {}
impl Segment for IpSetMember {}
impl Segment for IpSetName {}
impl Segment for NodeName {}
impl Segment for RuleName {}
impl Segment for SecurityGroup {}
impl Segment for SnapName {}
impl Segment for StorageId {}
impl Segment for Upid {}
impl Segment for Vmid {}
impl Segment for Volid {}

/// The path of a call below `/api2/json`, built from fixed words and parsed ids.
#[derive(Debug, Clone)]
pub(crate) struct Path(String);

impl Path {
    pub(crate) fn of(word: &'static str) -> Self {
        Self(String::new()).word(word)
    }

    /// `/nodes/{node}`
    pub(crate) fn node(node: &NodeName) -> Self {
        Self::of("nodes").id(node)
    }

    pub(crate) fn word(mut self, word: &'static str) -> Self {
        self.0.push('/');
        self.0.push_str(word);
        self
    }

    pub(crate) fn id(mut self, id: &impl Segment) -> Self {
        self.0.push('/');
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{}", utf8_percent_encode(&id.to_string(), ENCODED));
        self
    }

    /// A number as a segment.
    pub(crate) fn number(mut self, number: u32) -> Self {
        let _ = write!(self.0, "/{number}");
        self
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}
