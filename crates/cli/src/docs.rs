//! Manual and completions, generated from the definitions in [`crate::flags`].

use crate::environment::VARIABLES;
use crate::exit::{Exit, TABLE};
use crate::flags::{Cli, completable, examples};
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

/// Returns the completion script of a shell.
pub(crate) fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut completable(), "bankfull", &mut script);
    script
}

/// Returns the manual page of the whole command, or of one subcommand.
///
/// # Errors
/// [`ErrorKind::Usage`] if the subcommand does not exist.
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
                let why = format!("unknown command {name}: choose one of {names}");
                return Err(Error::new(ErrorKind::Usage, why));
            }
        },
    };
    page.map_err(|e| Error::new(ErrorKind::Local, format!("cannot generate the manual: {e}")))
}

/// Returns the commands that have a page: neither hidden ones nor clap's `help`.
fn visible(root: &Command) -> impl Iterator<Item = &Command> {
    root.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help")
}

/// Renders the page of the root, with a part for each subcommand.
fn whole_page(root: &Command) -> std::io::Result<Vec<u8>> {
    let mut parts = Vec::new();
    for command in visible(root) {
        parts.extend(part(command)?);
    }
    page(root, &parts)
}

/// Renders a page: the sections of `command`, then `parts`, then the common sections.
fn page(command: &Command, parts: &[u8]) -> std::io::Result<Vec<u8>> {
    let man = Man::new(command.clone()).source(format!("bankfull {}", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    page.extend_from_slice(synopsis_section(command).as_bytes());
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    page.extend_from_slice(parts);
    for section in [
        kept_section(),
        resume_section(),
        examples_section(command),
        json_section(),
        environment_section(),
        exit_section(),
        see_also_section(command),
    ] {
        page.extend_from_slice(section.as_bytes());
    }
    Ok(styled(&String::from_utf8_lossy(&page)).into_bytes())
}

/// Renders the sections of a subcommand, one level deeper, under its name.
fn part(command: &Command) -> std::io::Result<Vec<u8>> {
    let man = Man::new(command.clone());
    let mut sections = Vec::new();
    man.render_description_section(&mut sections)?;
    man.render_options_section(&mut sections)?;
    let sections = String::from_utf8_lossy(&sections).replace("\n.SH ", "\n.SS ");
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    Ok(format!(".SH \"{}\"\n{sections}", name.to_uppercase()).into_bytes())
}

/// Renders the usage of a command, or of each of its subcommands.
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
        "With --json, each line of standard output is one object, written when the event occurs. \
         Its first field, event, is the type. cp starts with start, continues with destination, \
         connected, progress, tuning, buffer_limit, file, file_failed and warning, and ends with \
         summary or error. gather has the same events, each with its source, and source_done. \
         probe starts with start, continues with connected, progress, tuning and warning, and \
         ends with probe_result or error. serve starts with listening, continues with \
         client_connected, client_done, tuning, file, file_failed and warning, and ends with \
         stopped or error. Readers should skip unknown events and fields. All fields are \
         described in docs/cli.md of {}.",
        env!("CARGO_PKG_REPOSITORY")
    );
    format!(".SH \"JSON LINES\"\n.PP\n{}\n", roff(&text))
}

/// Returns the section about preserved content and metadata.
fn kept_section() -> String {
    let text = "File contents, permission bits, modification times and symlinks are kept; holes in \
                files stay holes. Owners, groups, devices and special files are kept with -a, \
                hard links with -H, extended attributes with -X, ACLs with -A and access times \
                with -U; a daemon sets what its flags permit. Without -D, sockets, devices and \
                FIFOs are skipped with a message. Set-id bits are kept where owner and group \
                are, by a daemon only with --allow-owner.";
    format!(".SH \"WHAT IS KEPT\"\n.PP\n{}\n", roff(text))
}

/// Returns how an interrupted copy continues.
fn resume_section() -> String {
    let text = "Run the same command again. Verified blocks of an interrupted copy are kept beside \
                the destination, in files named .bankfull-*.part and .bankfull-*.journal, and are \
                not sent again if size and times of the source are unchanged. Files that are \
                already at the destination, with equal size and modification time, are skipped; \
                --checksum compares their content instead. A file gets its final name only once \
                it is complete and its hash is verified.";
    format!(".SH RESUME\n.PP\n{}\n", roff(text))
}

/// Returns the related pages.
fn see_also_section(command: &Command) -> String {
    let own = command.get_name();
    let root = Cli::command();
    let pages = visible(&root).map(|c| format!("bankfull-{}", c.get_name()));
    let pages = std::iter::once("bankfull".to_owned()).chain(pages);
    let is_other = |page: &String| page != own && page.strip_prefix("bankfull-") != Some(own);
    let names = pages.filter(is_other).chain(["ssh", "scp", "rsync"].map(str::to_owned));
    let names: Vec<String> = names.map(|name| format!("\\fB{}\\fR(1)", roff(&name))).collect();
    format!(".SH \"SEE ALSO\"\n.PP\n{}\n", names.join(", "))
}

/// Sets text between backticks in bold, and prevents hyphenation.
fn styled(page: &str) -> String {
    let mut styled = String::with_capacity(page.len() + 1024);
    for line in page.lines() {
        let mut is_bold = false;
        for (at, part) in line.split('`').enumerate() {
            if at > 0 {
                is_bold = !is_bold;
                styled.push_str(if is_bold { "\\fB" } else { "\\fR" });
            }
            styled.push_str(&part.replace("bankfull://", "\\%bankfull://"));
        }
        styled.push('\n');
        if line.starts_with(".TH ") {
            styled.push_str(".nh\n");
        }
    }
    styled
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

/// Escapes text for roff: backslashes, dashes, and lines that look like requests.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    if escaped.starts_with(['.', '\'']) { format!("\\&{escaped}") } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns every long flag of a command as typed.
    fn long_flags(command: &Command) -> Vec<String> {
        command.get_arguments().filter_map(|a| a.get_long()).map(|l| format!("--{l}")).collect()
    }

    fn all_commands() -> Vec<Command> {
        let mut root = Cli::command();
        root.build();
        visible(&root).cloned().collect()
    }

    fn text_of(subcommand: Option<&str>) -> String {
        let page = String::from_utf8(man(subcommand).unwrap()).unwrap();
        page.replace("\\-", "-").replace("\\%", "")
    }

    #[test]
    fn manual_names_every_flag() {
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
    fn completions_name_every_flag() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(completions(shell)).unwrap();
            for flag in all_commands().iter().flat_map(long_flags) {
                // fish omits the dashes.
                let name = flag.trim_start_matches('-');
                assert!(script.contains(name), "{flag} is missing for {shell}");
            }
        }
    }

    #[test]
    fn page_has_examples_variables_and_exit_codes() {
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
    fn hidden_command_is_not_completed() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
            let script = String::from_utf8(completions(shell)).unwrap();
            assert!(!script.contains("agent"), "{shell}");
            assert!(script.contains("serve") && script.contains("version"), "{shell}");
        }
    }

    #[test]
    fn hidden_or_unknown_command_page_is_a_usage_error() {
        for name in ["agent", "mv"] {
            let error = man(Some(name)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().contains("cp, gather, ls, probe, serve"), "{error}");
        }
    }

    #[test]
    fn page_has_no_backticks_and_does_not_hyphenate_addresses() {
        for subcommand in
            [None, Some("cp"), Some("gather"), Some("ls"), Some("probe"), Some("serve")]
        {
            let page = String::from_utf8(man(subcommand).unwrap()).unwrap();
            assert!(!page.contains('`'), "{page}");
            assert_eq!(page.matches("bankfull://").count(), page.matches("\\%bankfull://").count());
            for section in [".SH \"SEE ALSO\"", ".SH RESUME", ".SH \"WHAT IS KEPT\"", ".nh"] {
                assert!(page.contains(section), "{section}");
            }
        }
    }

    #[test]
    fn roff_text_cannot_become_a_request() {
        assert_eq!(roff(".x -y \\n"), "\\&.x \\-y \\en");
    }
}
