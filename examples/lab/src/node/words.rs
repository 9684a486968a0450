//! The words of a command line, by the quoting rules of the POSIX shell and nothing else of it.
//!
//! Quotes and backslashes are understood. Everything by which a shell would do more than pass words (expansion,
//! substitution, redirection, lists) is refused, so that a line a real shell would read otherwise never passes
//! here.

/// Splits a line; `None` when it has an unquoted special character or an open quote.
pub(crate) fn split(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match char {
            ' ' | '\t' => words.extend(word.take()),
            '\'' => {
                let into = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '\'' => break,
                        inner => into.push(inner),
                    }
                }
            }
            '"' => {
                let into = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '"' => break,
                        '$' | '`' => return None,
                        '\\' => match chars.next()? {
                            special @ ('$' | '`' | '"' | '\\') => into.push(special),
                            '\n' => {}
                            other => into.extend(['\\', other]),
                        },
                        inner => into.push(inner),
                    }
                }
            }
            '\\' => match chars.next()? {
                '\n' => {}
                escaped => word.get_or_insert_default().push(escaped),
            },
            '|' | '&' | ';' | '<' | '>' | '(' | ')' | '$' | '`' | '*' | '?' | '[' | '#' | '~' | '!' | '{'
            | '}' | '\n' | '\0' => return None,
            plain => word.get_or_insert_default().push(plain),
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn quotes_and_backslashes_follow_the_shell() {
        let words = split(r#"pct exec 200 -- 'a b' "c\"d" e\ f 'it'\''s' '' "#).unwrap();
        assert_eq!(words, ["pct", "exec", "200", "--", "a b", "c\"d", "e f", "it's", ""]);
    }

    #[test]
    fn dp_anything_a_shell_would_act_on_is_refused_outside_single_quotes() {
        for line in
            ["a; b", "a|b", "a $(b)", "a `b`", "a > b", "a *", "a ~", "a 'b", "a\nb", "a \"$b\"", "a \\"]
        {
            assert_eq!(split(line), None, "{line}");
        }
        assert_eq!(split("'$(id)'").unwrap(), ["$(id)"]);
    }
}
