//! Splits a command such as `ssh -o "Port 22"` into words, as a shell does. Only quotes and
//! backslashes are special; variables, globs, `~` and `;` are not.
//!
//! | Input | Meaning |
//! | --- | --- |
//! | space, tab, newline | separates words |
//! | `'…'` | literal text |
//! | `"…"` | literal text, except `\"`, `\\`, `\$` and `` \` ``, which lose the backslash |
//! | `\` outside quotes | the next byte is literal |

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Splits `text` into words.
///
/// # Errors
/// A message about an open quote, a backslash at the end, or an empty command.
pub(crate) fn split(text: &OsStr) -> Result<Vec<OsString>, String> {
    let mut words = Vec::new();
    let mut rest = text.as_bytes();
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            break;
        }
        let (word, after) = take_word(rest)?;
        words.push(OsString::from_vec(word));
        rest = after;
    }
    if words.is_empty() { Err("the command is empty".to_owned()) } else { Ok(words) }
}

/// Takes one word; returns it with the remaining text.
fn take_word(text: &[u8]) -> Result<(Vec<u8>, &[u8]), String> {
    let mut word = Vec::new();
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = match first {
            b'\'' => take_single_quoted(after, &mut word)?,
            b'"' => take_double_quoted(after, &mut word)?,
            b'\\' => {
                let (&kept, after) =
                    after.split_first().ok_or("a backslash at the end escapes nothing")?;
                word.push(kept);
                after
            }
            blank if blank.is_ascii_whitespace() => break,
            &byte => {
                word.push(byte);
                after
            }
        };
    }
    Ok((word, rest))
}

fn take_single_quoted<'a>(text: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], String> {
    let end = text.iter().position(|&b| b == b'\'').ok_or("a single quote is not closed")?;
    word.extend_from_slice(&text[..end]);
    Ok(&text[end + 1..])
}

fn take_double_quoted<'a>(text: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], String> {
    let mut rest = text;
    loop {
        rest = match rest {
            [] => return Err("a double quote is not closed".to_owned()),
            [b'"', after @ ..] => return Ok(after),
            [b'\\', kept @ (b'"' | b'\\' | b'$' | b'`'), after @ ..] | [kept, after @ ..] => {
                word.push(*kept);
                after
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        split(OsStr::new(text)).unwrap().into_iter().map(|w| w.into_string().unwrap()).collect()
    }

    #[test]
    fn blanks_separate_words() {
        assert_eq!(words("  ssh\t-p 22 \n"), ["ssh", "-p", "22"]);
    }

    #[test]
    fn quotes_join_text_within_a_word() {
        assert_eq!(words("a 'b c' \"d e\""), ["a", "b c", "d e"]);
        assert_eq!(words("-o'Proxy Command'=x"), ["-oProxy Command=x"]);
        assert_eq!(words("'' \"\""), ["", ""]);
    }

    #[test]
    fn backslash_escapes_as_in_a_shell() {
        assert_eq!(words(r"a\ b \\ \'"), ["a b", r"\", "'"]);
        assert_eq!(words(r#""a\"b" "c\\d" "e\nf" "\$x""#), ["a\"b", r"c\d", r"e\nf", "$x"]);
        assert_eq!(words(r"'a\b'"), [r"a\b"]);
    }

    #[test]
    fn special_characters_are_not_expanded() {
        assert_eq!(words("~/x $HOME *;y"), ["~/x", "$HOME", "*;y"]);
    }

    #[test]
    fn invalid_utf8_is_kept() {
        let text = OsStr::from_bytes(b"ssh '\xff'");
        assert_eq!(split(text).unwrap()[1], OsStr::from_bytes(b"\xff"));
    }

    #[test]
    fn unterminated_or_empty_command_is_an_error() {
        for bad in ["", "  ", "ssh 'x", "ssh \"x", r#"ssh "x\""#, r"ssh x\"] {
            assert!(split(OsStr::new(bad)).is_err(), "{bad}");
        }
    }
}
