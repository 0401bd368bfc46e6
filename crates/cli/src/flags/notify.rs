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
        match text {
            "" => Err("it is empty: give a command, or a URL".to_owned()),
            url if url.starts_with("https://") || url.starts_with("http://") => {
                match url
                    .parse::<Uri>()
                    .is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty()))
                {
                    true => Ok(Self::Url(url.to_owned())),
                    false => Err("write a URL as https://HOST/PATH".to_owned()),
                }
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
        for bad in ["", "https://", "http:///x", "https://a b/"] {
            assert!(bad.parse::<Notify>().is_err(), "{bad}");
        }
    }
}
