//! The node's own word for what is in a container: `pct pull` brings the temporary file back, and the node hashes it. A guest
//! whose hash program lies is found out; a guest that hands the node other bytes than its own programs read is not, but then
//! those are the bytes the node sees.

use super::attempt::Attempt;
use super::guest::{self, HASH, guest_failed, hex, not_understood, still_running};
use crate::error::{PushError, PushErrorKind, Step};
use crate::options::{PushOptions, Verify};
use crate::receipt::VerifiedAt;
use crate::ssh::Sftp;

/// Room asked for on the node beyond the file itself.
const SPACE_FLOOR: u64 = 16 * 1024 * 1024;

/// Refuses a push that could not be verified so, before a byte travels: `length` is the source's, where it is known.
pub(super) async fn possible(
    attempt: &Attempt<'_>,
    options: &PushOptions,
    length: Option<u64>,
) -> Result<(), PushError> {
    if options.verify == Verify::Strong {
        staging_with_room(attempt, length.unwrap_or(0)).await?;
    }
    Ok(())
}

/// Refuses a push into a virtual machine that asks for it: nothing outside it reads its files.
pub(crate) fn only_for_containers(options: &PushOptions) -> Result<(), PushError> {
    match options.verify {
        Verify::Guest => Ok(()),
        Verify::Strong => Err(PushError::new(
            PushErrorKind::Target,
            "the strong verification is for containers: the node cannot read a virtual machine's files; verify in the guest",
        )),
    }
}

/// The staging directory, safe and with room for so many bytes.
async fn staging_with_room(attempt: &Attempt<'_>, bytes: u64) -> Result<Sftp, PushError> {
    let directory = attempt.pusher.target().staging_dir.as_str();
    let sftp = Sftp::open(&attempt.session, attempt.pusher.deadlines().step).await?;
    sftp.directory(&attempt.session, directory).await?;
    sftp.require_space(directory, bytes.saturating_add(SPACE_FLOOR)).await?;
    Ok(sftp)
}

/// Where the content is proven right: in the guest, as said, or where asked for by what the node pulls out of it again.
pub(super) async fn verify_too(
    attempt: &mut Attempt<'_>,
    vmid: u32,
    temp: &str,
    (bytes, sha256): (u64, &[u8; 32]),
    options: &PushOptions,
    so_far: VerifiedAt,
) -> Result<VerifiedAt, PushError> {
    match options.verify {
        Verify::Guest => Ok(so_far),
        Verify::Strong => {
            pull_and_compare(attempt, vmid, temp, bytes, sha256).await?;
            Ok(VerifiedAt::Pulled)
        }
    }
}

async fn pull_and_compare(
    attempt: &mut Attempt<'_>,
    vmid: u32,
    temp: &str,
    bytes: u64,
    sha256: &[u8; 32],
) -> Result<(), PushError> {
    let sftp = staging_with_room(attempt, bytes).await?;
    let path = attempt.name_staging()?;
    let target = attempt.pusher.target();
    let number = vmid.to_string();
    let mut argv = vec!["pct", "pull", &number, temp, &path, "--perms", "0600"];
    if target.sudo {
        // Written by root, read by the user that logs in.
        argv.extend(["--user", &target.user]);
    }
    let argv = attempt.pusher.on_node(&argv);
    let deadline = attempt.pusher.deadlines().copy(bytes);
    let pulled = attempt
        .run_tracked(argv, Step::Pull, deadline)
        .await
        .map_err(|error| still_running(error, "pct pull may still be at work and write the staging file"))?;
    if pulled.status != 0 {
        return Err(guest_failed(attempt.place, Step::Pull, &pulled));
    }
    let limit = deadline.as_secs().to_string();
    let hash = ["sh", "-c", HASH, "proxward", &path, &limit].map(|argument| argument.as_bytes().to_vec());
    let hashed = attempt.session.run(&hash, Step::Pull, deadline).await?;
    sftp.remove(&path).await?;
    attempt.staging_is_gone();
    if hashed.status != 0 {
        return Err(guest::failed(Step::Pull, &hashed));
    }
    match guest::parse_hash(&hashed.stdout) {
        Some((Some(found), size)) if size == bytes && found == hex(sha256) => Ok(()),
        Some((Some(found), size)) => Err(PushError::new(
            PushErrorKind::HashMismatch,
            format!(
                "the node pulled {size} of {bytes} bytes with SHA-256 {found} out of the guest, expected {}, although the \
                 guest's own programs found nothing wrong; do not trust them. The destination is untouched",
                hex(sha256)
            ),
        )),
        Some((None, _)) => Err(PushError::new(
            PushErrorKind::Target,
            "the node has no program to hash with; install coreutils or openssl on it, or verify in the guest alone",
        )),
        None => Err(not_understood(Step::Pull, &hashed)),
    }
}
