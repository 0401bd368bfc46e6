//! Text in a picture: what must be escaped, how wide it is, and what fits.

use std::borrow::Cow;
use std::fmt::Write;

/// Text for an XML or HTML element or a quoted attribute. What XML cannot hold (control
/// characters) and what turns the direction of the text around it becomes U+FFFD.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| escaped(c).is_some()) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match escaped(c) {
            Some(instead) => out.push_str(instead),
            None => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// What stands for a character that cannot stand for itself.
fn escaped(c: char) -> Option<&'static str> {
    match c {
        '<' => Some("&lt;"),
        '>' => Some("&gt;"),
        '&' => Some("&amp;"),
        '"' => Some("&quot;"),
        '\'' => Some("&#39;"),
        '\t' | '\n' | '\r' => Some(" "),
        c if is_harmful(c) => Some("\u{fffd}"),
        _ => None,
    }
}

/// Control characters, non-characters (XML 1.0, 2.2), and the controls of direction (UAX #9).
fn is_harmful(c: char) -> bool {
    let is_direction = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_direction || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// A string for JSON inside a `script` element: no `<` is left that could end it.
pub(crate) fn json_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\t' | '\n' | '\r' => out.push(' '),
            // Writing to a string cannot fail.
            '<' | '>' | '&' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c if is_harmful(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// How wide a text becomes at most in a common sans-serif font of `size` pixels.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(em).sum::<f64>() * size
}

/// The width of a character in parts of the font size: as in DejaVu Sans, which is wider than
/// the other fonts that a reader is likely to have, and rounded up. (ours)
fn em(c: char) -> f64 {
    match c {
        '\u{300}'..='\u{36f}' | '\u{200b}'..='\u{200f}' => 0.0,
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '|' | '!' | '\'' | ' ' | '\u{a0}' => 0.36,
        'f' | 't' | 'r' | '-' | '/' | '(' | ')' | '[' | ']' => 0.42,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' | '—' | '→' => 1.0,
        'A'..='Z' | '+' | '=' | '<' | '>' | '~' | '#' | '&' => 0.84,
        ' '..='\u{10ff}' => 0.65,
        _ => 1.1,
    }
}

/// As much of a text as fits into `room` pixels, with an ellipsis if something is missing.
pub(crate) fn fit(text: &str, size: f64, room: f64) -> Cow<'_, str> {
    if width(text, size) <= room {
        return Cow::Borrowed(text);
    }
    let mut left = room - width("…", size);
    let mut end = 0;
    for (at, c) in text.char_indices() {
        left -= em(c) * size;
        if left < 0.0 {
            break;
        }
        end = at + c.len_utf8();
    }
    Cow::Owned(format!("{}…", text[..end].trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(
            escape("<script>\"a\" & 'b'</script>"),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;"
        );
        assert_eq!(escape("a\nb\0c\u{202e}d\u{1b}"), "a b\u{fffd}c\u{fffd}d\u{fffd}");
        assert_eq!(escape("Größe"), "Größe");
        assert_eq!(
            json_string("</script>\"\\\n\u{1}&"),
            r#""\u003c/script\u003e\"\\ "#.to_owned() + "\u{fffd}\\u0026\""
        );
    }

    #[test]
    fn long_text_is_cut_to_the_room_there_is() {
        assert_eq!(fit("short", 12.0, 100.0), "short");
        let cut = fit("a very long name of some tool", 12.0, 100.0);
        assert!(cut.ends_with('…') && width(&cut, 12.0) <= 100.0, "{cut}");
        assert_eq!(fit("數據傳輸", 10.0, 25.0), "數…");
        assert_eq!(fit("anything", 10.0, 0.0), "…");
    }
}
