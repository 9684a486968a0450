//! `guest-push`: what a hash program in a guest prints.

use guest_push::fuzzing::{self, Verdict};

use crate::bytes::Bytes;

const SENT: [u8; 32] = [0xa5; 32];

/// Eight bytes of size and one of choice; then what the guest prints, or what is put in place of a part of a good answer.
pub fn hash_output(data: &[u8]) {
    let mut bytes = Bytes(data);
    let size = u64::from_be_bytes(bytes.array());
    let choice = bytes.byte();
    let rest = bytes.0;
    let good = format!("{} {size}\n", hex(&SENT));
    match choice % 4 {
        // Anything at all.
        0 => judge(rest, size),
        // A good answer with a splinter in it.
        1 => {
            let at = usize::from(choice / 4) % (good.len() + 1);
            let (before, after) = good.as_bytes().split_at(at);
            judge(&[before, rest, after].concat(), size);
        }
        // Another file's hash.
        2 => {
            let mut other = [0; 32];
            for (to, from) in other.iter_mut().zip(rest) {
                *to = *from;
            }
            judge(format!("{} {size}\n", hex(&other)).as_bytes(), size);
        }
        // Another size.
        _ => judge(format!("{} {}", hex(&SENT), u64::from(choice) ^ size).as_bytes(), size),
    }
}

/// Only the one right answer proves the file, and only its two other readable forms say anything else.
fn judge(printed: &[u8], size: u64) {
    let line = printed.strip_suffix(b"\n").unwrap_or(printed);
    let split = line.iter().position(|b| *b == b' ');
    let parts = split.map(|at| (&line[..at], &line[at + 1..]));
    let is_size = |text: &[u8]| {
        text.first().is_some_and(|b| *b != b'0' || text.len() == 1)
            && text.iter().all(u8::is_ascii_digit)
            && (text.len() < 20 || (text.len() == 20 && text <= u64::MAX.to_string().as_bytes()))
    };
    let is_hash = |text: &[u8]| text.len() == 64 && text.iter().all(|b| b"0123456789abcdef".contains(b));
    let expected = match parts {
        Some((hash, text)) if is_size(text) && (is_hash(hash) || hash == b"none") => {
            if text != size.to_string().as_bytes() {
                Verdict::Other
            } else if hash == b"none" {
                Verdict::Unverified
            } else if hash == hex(&SENT).as_bytes() {
                Verdict::Same
            } else {
                Verdict::Other
            }
        }
        _ => Verdict::NotUnderstood,
    };
    assert_eq!(
        fuzzing::hash_output(printed, size, &SENT),
        expected,
        "{:?}",
        String::from_utf8_lossy(printed)
    );
}

fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
