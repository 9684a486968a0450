//! The label sets. All values are `&'static str`: a label cannot be made from input.

use std::fmt::{Error, Write as _};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

/// A transfer route by its label. The path itself holds a token and is never written anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransferRoute {
    /// Into a guest or onto a storage, by an upload link; in one request or, with tus, in several.
    Upload,
    /// Out of a guest, by a download link.
    Download,
    /// Into a guest, from a URL.
    Fetch,
}

impl TransferRoute {
    /// The route with a placeholder where the token is.
    pub fn label(self) -> &'static str {
        match self {
            Self::Upload => "/transfers/upload/{token}",
            Self::Download => "/transfers/download/{token}",
            Self::Fetch => "proxmox_fetch_url",
        }
    }
}

impl EncodeLabelValue for TransferRoute {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), Error> {
        encoder.write_str(self.label())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct BuildLabels {
    pub version: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CallLabels {
    pub tool: &'static str,
    pub outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ToolLabels {
    pub tool: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TransferLabels {
    pub route: TransferRoute,
    pub outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RouteLabels {
    pub route: TransferRoute,
}
