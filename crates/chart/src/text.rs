//! Text in pictures: escaping, width and truncation.

use std::borrow::Cow;
use std::fmt::Write;

/// Escapes text for an XML or HTML element or a quoted attribute.
///
/// Control characters, which XML cannot hold, and controls of the text direction become U+FFFD.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| replacement(c).is_some()) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match replacement(c) {
            Some(instead) => out.push_str(instead),
            None => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Returns the replacement of a character that must be escaped.
fn replacement(c: char) -> Option<&'static str> {
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

/// Returns whether a character is a control, a non-character (XML 1.0, 2.2), or a control of
/// direction (UAX #9).
fn is_harmful(c: char) -> bool {
    let is_direction = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_direction || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// Returns a JSON string for a `script` element: without `<`, which could end the element.
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

/// Returns the maximum width of a text in a common sans-serif font of `size` pixels.
pub(crate) fn text_width(text: &str, size: f64) -> f64 {
    text.chars().map(char_width).sum::<f64>() * size
}

/// Returns the width of a character as a fraction of the font size.
///
/// The widths are those of DejaVu Sans, rounded up: it is wider than other common fonts. (chosen:
/// labels never overlap)
fn char_width(c: char) -> f64 {
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

/// Truncates a text to `max_width` pixels, with an ellipsis if something is cut off.
pub(crate) fn truncate(text: &str, size: f64, max_width: f64) -> Cow<'_, str> {
    if text_width(text, size) <= max_width {
        return Cow::Borrowed(text);
    }
    let mut left = max_width - text_width("…", size);
    let mut end = 0;
    for (at, c) in text.char_indices() {
        left -= char_width(c) * size;
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
    fn text_with_markup_is_escaped() {
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
    fn long_text_is_truncated_to_max_width() {
        assert_eq!(truncate("short", 12.0, 100.0), "short");
        let cut = truncate("a very long name of some tool", 12.0, 100.0);
        assert!(cut.ends_with('…') && text_width(&cut, 12.0) <= 100.0, "{cut}");
        assert_eq!(truncate("數據傳輸", 10.0, 25.0), "數…");
        assert_eq!(truncate("anything", 10.0, 0.0), "…");
    }
}
