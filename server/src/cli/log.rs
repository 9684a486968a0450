//! Log lines on standard error. The audit trail does not come this way.

use tracing_subscriber::EnvFilter;

use super::args::AuditFormat;

/// What is logged unless `RUST_LOG` says otherwise.
const DEFAULT: &str = "info";

/// Sets the process's log up. Later calls change nothing.
pub fn start(format: AuditFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // An error only says that a log exists already, as in tests.
    let _ = match format {
        AuditFormat::Text => builder.with_ansi(false).try_init(),
        AuditFormat::Json => builder.json().try_init(),
    };
}
