//! `proxward token rotate`: another secret for an entry, the same rights.

use authz::token::edit::{Rotation, rotate as rotated};
use clap::Args;
use jiff::Timestamp;
use zeroize::Zeroizing;

use super::{Expiry, HashKind, Named, Told, edit, explain, mint, parse_expiry};
use crate::config::Problem;

/// The flags of `token rotate`.
#[derive(Debug, Clone, Args)]
pub struct RotateArgs {
    /// Which entry, and where.
    #[command(flatten)]
    pub entry: Named,

    /// How the new secret is stored [default: as the old one was].
    #[arg(long, value_enum)]
    pub hash: Option<HashKind>,

    /// When it stops working [default: as the entry says]: a time such as 2027-01-31T12:00:00Z, or from now such as 90d.
    #[arg(long, value_name = "WHEN", value_parser = parse_expiry)]
    pub expires: Option<Expiry>,

    /// Whom to tell.
    #[command(flatten)]
    pub server: Told,
}

/// Gives the entry another secret and returns the token's text, which is kept nowhere else.
///
/// # Errors
/// Every problem; nothing was written then.
pub fn rotate(args: &RotateArgs, now: Timestamp) -> Result<Zeroizing<String>, Vec<Problem>> {
    let expires = args.expires.map(|expires| expires.from(now)).transpose()?;
    let name = args.entry.name();
    let mut text = None;
    edit(&args.entry.tokens_file, |current, table| {
        let explained = |error| explain(&args.entry.tokens_file, error);
        let old = table.principal(name);
        if let Some(old) = &old
            && expires.is_none()
            && old.is_expired(now)
        {
            return Err(vec![Problem::flag(format!(
                "{name} has expired, and with the same end its new token would too: name another with --expires"
            ))]);
        }
        let kept = match table.stored(name).map(|stored| stored.hash) {
            Some("sha256") => HashKind::Sha256,
            _ => HashKind::Argon2id,
        };
        // A name the file does not have is the edit's to refuse, before a slow hash is paid for.
        let (minted, hash) = mint(if old.is_some() { args.hash.unwrap_or(kept) } else { HashKind::Sha256 })?;
        let rotation = Rotation { hash: &hash, id: &minted.id, expires };
        let edited = rotated(current, name, &rotation).map_err(explained)?;
        text = Some(minted.text);
        Ok(edited)
    })?;
    Ok(text.unwrap_or_default())
}
