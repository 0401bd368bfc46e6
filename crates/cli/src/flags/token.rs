//! Flags of `bankfull token` and `bankfull login`.

use super::values::{client_key, listen, plain_name};
use super::when::until;
use super::{Example, Listen, after_help};
use bankfull::ClientKey;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::SystemTime;

pub(super) const EXAMPLES: &[Example] = &[
    ("bankfull token create laptop --invite", "Print the line that `bankfull login` reads."),
    (
        "bankfull token create backup --share data --prefix nightly --write-only --expires 90d",
        "Permit uploads into one directory, for three months.",
    ),
    ("bankfull token list", "Show the tokens and what they permit."),
    ("bankfull token revoke laptop", "End the sessions of a token, and refuse new ones."),
];

pub(super) const LOGIN_EXAMPLES: &[Example] = &[
    ("bankfull login < invite", "Store the daemon of an invite under the name of its host."),
    ("bankfull login store < invite", "Store it as `store:`, as in bankfull ls store:"),
    ("bankfull login --key", "Print the public key for an invite without a token."),
];

/// Actions on tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TokenAction {
    /// Adds a token, and prints it once.
    Create,
    /// Shows all tokens.
    List,
    /// Removes a token.
    Revoke,
}

/// Create, list or revoke the tokens of a daemon
///
/// The daemon keeps the hashes of tokens in a file; each token may be limited to a share, a
/// directory, reading or writing, and a time. A running daemon applies a change within a second.
#[derive(Debug, Args)]
#[command(args_override_self = true, after_long_help = after_help(EXAMPLES))]
pub(crate) struct TokenFlags {
    /// Action: create, which prints the new token; list; or revoke
    #[arg(value_name = "ACTION", value_enum, hide_possible_values = true)]
    pub(crate) action: TokenAction,

    /// Name of the token: letters, digits, `-`, `_` and `.`
    #[arg(value_name = "NAME", value_parser = plain_name)]
    pub(crate) name: Option<String>,

    /// Permit this share alone
    ///
    /// Default: all shares.
    #[arg(long, value_name = "SHARE", value_parser = plain_name)]
    pub(crate) share: Option<String>,

    /// Permit this directory alone, beneath the share or the served directory
    ///
    /// It has to exist when the token is used. Default: everything there.
    #[arg(long, value_name = "PATH")]
    pub(crate) prefix: Option<PathBuf>,

    /// Permit no uploads
    ///
    /// Default: they are permitted.
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Permit neither downloads nor listings
    ///
    /// Default: they are permitted.
    #[arg(long, conflicts_with = "read_only")]
    pub(crate) write_only: bool,

    /// Refuse the token from this time on: 90d, 36h, 2027-01-31, or 2027-01-31T18:00:00Z
    ///
    /// Sessions end then, too. Default: it does not expire.
    #[arg(long, value_name = "WHEN", value_parser = until)]
    pub(crate) expires: Option<SystemTime>,

    /// Permit the client with this public key, instead of a token
    ///
    /// Write the line that `bankfull login --key` prints. Default: a new token.
    #[arg(long, value_name = "ed25519:HEX", value_parser = client_key)]
    pub(crate) key: Option<ClientKey>,

    /// Print an invite instead: address, fingerprint, and token or key, for `bankfull login`
    ///
    /// Default: the token alone.
    #[arg(long)]
    pub(crate) invite: bool,

    /// Set the address of the daemon in the invite
    ///
    /// Default: the name of this host, and the port that `listen` sets in the daemon's file, else
    /// 7440.
    #[arg(long, value_name = "HOST:PORT", value_parser = listen, requires = "invite")]
    pub(crate) address: Option<Listen>,

    /// Set the certificate of the daemon, for the fingerprint in the invite
    ///
    /// Default: that of the daemon's file /etc/bankfull/serve.toml, else the generated one in the
    /// state directory.
    #[arg(long, value_name = "FILE", requires = "invite")]
    pub(crate) certificate: Option<PathBuf>,

    /// Set the file of the tokens
    ///
    /// Default: tokens.toml in the state directory.
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,

    /// Set the state directory of the daemon
    ///
    /// Default: the environment variable BANKFULL_STATE_DIR, else that of the daemon's file
    /// /etc/bankfull/serve.toml, else that of `bankfull serve`.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,

    /// Write one JSON object per line
    ///
    /// Default: text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Store a daemon and its token as a named remote
///
/// Reads the line of `bankfull token create --invite` from standard input, so that no other user of
/// this host sees the token. Then NAME: stands for the daemon in all commands.
#[derive(Debug, Args)]
#[command(args_override_self = true, after_long_help = after_help(LOGIN_EXAMPLES))]
pub(crate) struct LoginFlags {
    /// Name of the remote: letters, digits, `-`, `_` and `.`
    ///
    /// Default: the name of the host, up to its first dot.
    #[arg(value_name = "NAME", value_parser = plain_name)]
    pub(crate) name: Option<String>,

    /// Print the public key of this user instead, for `bankfull token create --key`
    ///
    /// The private key is created if there is none: client.key beside the configuration file. No
    /// secret has to be passed on then. Default: read an invite.
    #[arg(long, conflicts_with = "name")]
    pub(crate) key: bool,

    /// Replace a remote of this name, such as after the daemon got another certificate
    #[arg(long, conflicts_with = "key")]
    pub(crate) replace: bool,
}

#[cfg(test)]
mod tests {
    use super::super::Command;
    use super::super::tests::parse;
    use super::*;

    fn token(line: &str) -> Result<TokenFlags, String> {
        let words: Vec<&str> = ["token"].into_iter().chain(line.split(' ')).collect();
        match parse(&words) {
            Ok(Command::Token(flags)) => Ok(*flags),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn permissions_of_a_token_parse() {
        let flags = token("create x --share d --prefix a/b --write-only --expires 1d").unwrap();
        assert_eq!(flags.action, TokenAction::Create);
        assert_eq!((flags.name.as_deref(), flags.share.as_deref()), (Some("x"), Some("d")));
        assert!(flags.write_only && !flags.read_only && flags.expires > Some(SystemTime::now()));
        for bad in [
            "create x --read-only --write-only",
            "create x --expires never",
            "create x/y",
            "create x --address h:1",
            "delete x",
        ] {
            assert!(token(bad).is_err(), "{bad}");
        }
        assert_eq!(token("list").unwrap().name, None);
    }
}
