//! Presentation of results: Markdown tables and the HTML report.

pub mod html;
pub mod regret;
pub mod tables;
