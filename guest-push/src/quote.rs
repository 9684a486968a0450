//! The one place where an argument vector becomes a command line.
//!
//! SSH carries a command as a single string that the login shell of the node parses. Everything this crate runs
//! goes through [`argv`], so that no argument, whatever its bytes, is anything but one literal word to that shell.

/// An argument that no shell can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("argument {index} has a NUL byte at offset {at}; a command line cannot carry it")]
pub struct NulByte {
    /// Position of the argument in the vector, from 0.
    pub index: usize,
    /// Byte offset of the NUL in that argument.
    pub at: usize,
}

/// One argument as one POSIX shell word: single quotes around it, and each `'` written as `'\''`.
///
/// Words of plain characters are left as they are, which keeps command lines readable in a node's logs.
///
/// # Errors
/// [`NulByte`] when the argument has one; every other byte is carried, also those that are not UTF-8.
///
/// ```
/// assert_eq!(guest_push::quote::sh(b"it's; $(x)").unwrap(), br"'it'\''s; $(x)'");
/// ```
pub fn sh(argument: &[u8]) -> Result<Vec<u8>, NulByte> {
    let mut line = Vec::with_capacity(argument.len() + 2);
    push(&mut line, 0, argument)?;
    Ok(line)
}

/// An argument vector as one POSIX command line.
///
/// # Errors
/// [`NulByte`] names the argument that has one.
pub fn argv<A: AsRef<[u8]>>(arguments: &[A]) -> Result<Vec<u8>, NulByte> {
    let mut line = Vec::with_capacity(arguments.iter().map(|a| a.as_ref().len() + 3).sum());
    for (index, argument) in arguments.iter().enumerate() {
        if index > 0 {
            line.push(b' ');
        }
        push(&mut line, index, argument.as_ref())?;
    }
    Ok(line)
}

fn push(line: &mut Vec<u8>, index: usize, argument: &[u8]) -> Result<(), NulByte> {
    if let Some(at) = argument.iter().position(|b| *b == 0) {
        return Err(NulByte { index, at });
    }
    if is_plain(argument) {
        line.extend_from_slice(argument);
        return Ok(());
    }
    line.push(b'\'');
    for byte in argument {
        match byte {
            b'\'' => line.extend_from_slice(br"'\''"),
            other => line.push(*other),
        }
    }
    line.push(b'\'');
    Ok(())
}

/// Words that open a construct when they stand first in a command, in POSIX sh and in bash.
const RESERVED: [&[u8]; 20] = [
    b"if",
    b"then",
    b"else",
    b"elif",
    b"fi",
    b"do",
    b"done",
    b"case",
    b"esac",
    b"while",
    b"until",
    b"for",
    b"in",
    b"function",
    b"select",
    b"time",
    b"coproc",
    b"namespace",
    b"end",
    b"foreach",
];

/// True for words that no POSIX shell treats specially in any position: no `=` (assignment), no `~` or `%`
/// (expansion), not empty, not reserved.
fn is_plain(argument: &[u8]) -> bool {
    !argument.is_empty()
        && argument.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.' | b'_' | b'-'))
        && !RESERVED.contains(&argument)
}
