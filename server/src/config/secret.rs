//! Outbound secrets: read from a private file or the environment, never from `clusters.json` itself.

use std::path::Path;

use secrecy::SecretString;
use zeroize::Zeroizing;

use super::Environment;
use crate::files::{self, Privacy};

/// Longest secret file read, in bytes.
const MAX_SECRET: u64 = 4096;
/// What sample files hold in place of a secret.
const SAMPLE: &str = "CHANGEME";

/// Reads a secret file; one trailing line end is not part of the secret. The error never shows the content.
pub(super) fn from_file(path: &Path) -> Result<SecretString, String> {
    let bytes =
        Zeroizing::new(files::read(path, Privacy::Secret, MAX_SECRET).map_err(|error| error.to_string())?);
    let text = std::str::from_utf8(&bytes).map_err(|_| format!("{} is not text", path.display()))?;
    let text = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
    checked(text, &path.display().to_string())
}

/// Reads a secret from a variable of the process environment.
pub(super) fn from_environment(name: &str, environment: Environment<'_>) -> Result<SecretString, String> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err("expected the name of an environment variable".to_owned());
    }
    let value = environment(name).ok_or_else(|| format!("the environment variable {name} is not set"))?;
    let value = Zeroizing::new(value);
    let text = value.strip_suffix('\n').unwrap_or(&value);
    checked(text, &format!("the environment variable {name}"))
}

fn checked(text: &str, source: &str) -> Result<SecretString, String> {
    if text.is_empty() {
        return Err(format!("{source} is empty: put the token's secret there"));
    }
    if text.to_ascii_uppercase().contains(SAMPLE) {
        return Err(format!("{source} still holds the sample text {SAMPLE}: put the token's secret there"));
    }
    Ok(SecretString::from(text))
}
