//! Contents of the report of a probe: the result, the course of the path with its decisions, and
//! the time per stage.

use super::copy_page::{course, origin_facts, route_facts, stages};
use super::origin::Origin;
use super::record::Record;
use crate::output::{printable_text, probe_figures};
use bankfull::{Error, ProbeResult};
use bankfull_chart::{Page, Section};

/// Builds the page.
pub(super) fn page(
    title: &str,
    origin: &Origin,
    record: &Record,
    result: &Result<ProbeResult, Error>,
) -> Page {
    let mut page = Page::new(title);
    page.subtitle = match result {
        Ok(result) => capitalized(result.messages.first().map_or("", String::as_str)),
        Err(error) => format!("The probe failed: {}", printable_text(&error.to_string())),
    };
    page.sections.push(overview(origin, record, result));
    page.sections.extend(course(record));
    page.sections.extend(stages(record));
    page
}

/// Returns a message as a sentence.
fn capitalized(message: &str) -> String {
    let mut rest = message.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

/// Shows the figures and what they mean.
fn overview(origin: &Origin, record: &Record, result: &Result<ProbeResult, Error>) -> Section {
    let mut section = Section::new("Result");
    section.facts = origin_facts(origin);
    if let Ok(result) = result {
        let figures = probe_figures(result);
        section.facts.extend(figures.into_iter().map(|(name, value)| (name.to_owned(), value)));
        section.text.extend(result.messages.iter().skip(1).cloned());
    }
    section.facts.extend(route_facts(record));
    section.text.extend(record.warnings.kept.iter().map(|warning| printable_text(warning)));
    section
}
