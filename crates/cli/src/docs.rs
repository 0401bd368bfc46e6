//! The manual and the completions, made from the definitions in [`crate::flags`]. Nothing is
//! written by hand here, so neither can fall behind.

use crate::environment::VARIABLES;
use crate::exit::{Exit, TABLE};
use crate::flags::{Cli, examples, offered};
use crate::output::{Output, printable_text};
use bankfull::{Error, ErrorKind};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use std::fmt::Write;

/// Writes a generated text to standard output.
pub(crate) fn show(text: Result<Vec<u8>, Error>) -> Exit {
    let mut output = Output::standard();
    match text {
        Ok(text) => {
            output.data(&text);
            match output.failure() {
                None => Exit::Done,
                Some(why) => {
                    output.error(&why);
                    Exit::Local
                }
            }
        }
        Err(error) => {
            output.error(&error.to_string());
            error.kind().into()
        }
    }
}

/// The completion script of a shell.
pub(crate) fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut offered(), "bankfull", &mut script);
    script
}

/// The manual page of the whole command, or of one subcommand.
///
/// # Errors
/// [`ErrorKind::Usage`] when there is no such subcommand.
pub(crate) fn man(subcommand: Option<&str>) -> Result<Vec<u8>, Error> {
    let mut root = Cli::command();
    root.build();
    let page = match subcommand {
        None => whole_page(&root),
        Some(name) => match visible(&root).find(|command| command.get_name() == name) {
            Some(command) => page(command, &[]),
            None => {
                let names: Vec<_> = visible(&root).map(Command::get_name).collect();
                let (name, names) = (printable_text(name), names.join(", "));
                let why = format!("there is no command {name}; the commands are {names}");
                return Err(Error::new(ErrorKind::Usage, why));
            }
        },
    };
    page.map_err(|e| Error::new(ErrorKind::Local, format!("the manual cannot be made: {e}")))
}

/// The commands that have a page: not the hidden one, and not clap's `help`.
fn visible(root: &Command) -> impl Iterator<Item = &Command> {
    root.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help")
}

/// The page of the root with a part for each subcommand.
fn whole_page(root: &Command) -> std::io::Result<Vec<u8>> {
    let mut parts = Vec::new();
    for command in visible(root) {
        parts.extend(part(command)?);
    }
    page(root, &parts)
}

/// A page: the sections of `command`, then `parts`, then what holds for all of them.
fn page(command: &Command, parts: &[u8]) -> std::io::Result<Vec<u8>> {
    let man = Man::new(command.clone()).source(format!("bankfull {}", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    page.extend_from_slice(synopsis_section(command).as_bytes());
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    page.extend_from_slice(parts);
    for section in
        [examples_section(command), json_section(), environment_section(), exit_section()]
    {
        page.extend_from_slice(section.as_bytes());
    }
    Ok(page)
}

/// The sections of a subcommand, one level deeper, under its name.
fn part(command: &Command) -> std::io::Result<Vec<u8>> {
    let man = Man::new(command.clone());
    let mut sections = Vec::new();
    man.render_description_section(&mut sections)?;
    man.render_options_section(&mut sections)?;
    let sections = String::from_utf8_lossy(&sections).replace("\n.SH ", "\n.SS ");
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    Ok(format!(".SH \"{}\"\n{sections}", name.to_uppercase()).into_bytes())
}

/// How the command is called, or each of its subcommands.
fn synopsis_section(command: &Command) -> String {
    let below: Vec<&Command> = visible(command).collect();
    let called = if below.is_empty() { vec![command] } else { below };
    called.into_iter().fold(".SH SYNOPSIS\n".to_owned(), |mut text, command| {
        let usage = command.clone().render_usage().to_string();
        // Writing to a string cannot fail.
        let _ = writeln!(text, ".PP\n{}", roff(usage.trim_start_matches("Usage: ")));
        text
    })
}

fn examples_section(command: &Command) -> String {
    let name = if command.get_name() == "bankfull" { "" } else { command.get_name() };
    examples(name).iter().fold(".SH EXAMPLES\n".to_owned(), |mut text, (line, what)| {
        let _ = writeln!(text, ".PP\n{}\n.PP\n.nf\n.RS\n{}\n.RE\n.fi", roff(what), roff(line));
        text
    })
}

fn json_section() -> String {
    let text = format!(
        "With --json, each line of standard output is one object, written as it happens. Its first \
         field, event, says what it is. cp begins with start, goes on with landing, connected, \
         progress, tuned, file, file_failed and notice, and ends with summary or error. gather \
         has the same events, with the source that each is about, and source_done. probe \
         begins with start, goes on with connected, progress, tuned and notice, and ends with \
         findings or error. serve begins with listening, goes on with client_connected, \
         client_done, tuned, file, file_failed and notice, and ends with stopped or error. \
         Readers should skip events and fields they do \
         not know. Every field is described in docs/cli.md of {}.",
        env!("CARGO_PKG_REPOSITORY")
    );
    format!(".SH \"JSON LINES\"\n.PP\n{}\n", roff(&text))
}

fn environment_section() -> String {
    VARIABLES.iter().fold(".SH ENVIRONMENT\n".to_owned(), |mut text, (name, what)| {
        let _ = writeln!(text, ".TP\n{}\n{}", roff(name), roff(what));
        text
    })
}

fn exit_section() -> String {
    TABLE.iter().fold(".SH \"EXIT STATUS\"\n".to_owned(), |mut text, row| {
        let _ = writeln!(text, ".TP\n{}\n{}", row.exit.code(), roff(row.meaning));
        text
    })
}

/// Text as roff reads it: backslashes and dashes escaped, and no line that looks like a request.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    if escaped.starts_with(['.', '\'']) { format!("\\&{escaped}") } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every long flag of a command as it is typed.
    fn long_flags(command: &Command) -> Vec<String> {
        command.get_arguments().filter_map(|a| a.get_long()).map(|l| format!("--{l}")).collect()
    }

    fn all_commands() -> Vec<Command> {
        let mut root = Cli::command();
        root.build();
        visible(&root).cloned().collect()
    }

    fn text_of(subcommand: Option<&str>) -> String {
        String::from_utf8(man(subcommand).unwrap()).unwrap().replace("\\-", "-")
    }

    #[test]
    fn the_manual_mentions_every_flag_of_every_command() {
        let whole = text_of(None);
        for command in all_commands() {
            let own = text_of(Some(command.get_name()));
            assert!(long_flags(&command).len() > 1, "{}", command.get_name());
            for flag in long_flags(&command) {
                assert!(whole.contains(&flag), "{flag} is missing in the manual");
                assert!(own.contains(&flag), "{flag} is missing in the page of its command");
            }
        }
    }

    #[test]
    fn the_completions_mention_every_flag_of_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(completions(shell)).unwrap();
            for flag in all_commands().iter().flat_map(long_flags) {
                // fish writes the name without dashes.
                let name = flag.trim_start_matches('-');
                assert!(script.contains(name), "{flag} is missing for {shell}");
            }
        }
    }

    #[test]
    fn a_page_has_examples_variables_and_every_exit_code() {
        let page = text_of(Some("cp"));
        for (line, _) in examples("cp") {
            assert!(page.contains(line), "{line}");
        }
        for row in &TABLE {
            assert!(page.contains(&format!(".TP\n{}\n{}", row.exit.code(), row.meaning)));
        }
        for (name, what) in VARIABLES {
            assert!(page.contains(&format!(".TP\n{name}\n{what}")), "{name}");
        }
        assert!(page.contains("docs/cli.md of https://"), "{page}");
    }

    #[test]
    fn the_hidden_command_is_not_completed() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
            let script = String::from_utf8(completions(shell)).unwrap();
            assert!(!script.contains("agent"), "{shell}");
            assert!(script.contains("serve") && script.contains("version"), "{shell}");
        }
    }

    #[test]
    fn the_hidden_command_has_no_page_and_an_unknown_one_is_a_usage_error() {
        for name in ["agent", "mv"] {
            let error = man(Some(name)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().contains("cp, gather, probe, serve"), "{error}");
        }
    }

    #[test]
    fn text_cannot_become_a_roff_request() {
        assert_eq!(roff(".x -y \\n"), "\\&.x \\-y \\en");
    }
}
