//! Receiver of a notification, as the value of a flag.

use std::str::FromStr;
use ureq::http::Uri;

/// Receiver of a notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notify {
    /// Receives JSON by POST.
    Url(String),
    /// Receives JSON on its standard input, run by a shell.
    Command(String),
}

impl FromStr for Notify {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let scheme = text.trim().split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        let is_word = |scheme: &String| scheme.chars().all(|c| c.is_ascii_alphanumeric());
        match text.trim() {
            "" => Err("it is empty: give a command, or a URL".to_owned()),
            url if matches!(scheme.as_deref(), Some("https" | "http")) => {
                match url
                    .parse::<Uri>()
                    .is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty()))
                {
                    true => Ok(Self::Url(url.to_owned())),
                    false => Err("write a URL as https://HOST/PATH".to_owned()),
                }
            }
            _ if scheme.as_ref().is_some_and(is_word) => {
                Err("only https and http are known: give a command for others".to_owned())
            }
            command => Ok(Self::Command(command.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_urls_parse() {
        let command = "mail -s done me@example.org".parse::<Notify>().unwrap();
        assert_eq!(command, Notify::Command("mail -s done me@example.org".to_owned()));
        let url = "https://example.org/hook".parse::<Notify>().unwrap();
        assert_eq!(url, Notify::Url("https://example.org/hook".to_owned()));
        let upper = "HTTPS://example.org/hook".parse::<Notify>().unwrap();
        assert_eq!(upper, Notify::Url("HTTPS://example.org/hook".to_owned()));
        let command = "curl https://example.org/".parse::<Notify>().unwrap();
        assert!(matches!(command, Notify::Command(_)));
        for bad in ["", "  ", "ftp://example.org/x", "https://", "http:///x", "https://a b/"] {
            assert!(bad.parse::<Notify>().is_err(), "{bad}");
        }
    }
}
