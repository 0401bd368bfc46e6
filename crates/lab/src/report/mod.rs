//! Presentation of results: Markdown tables and the HTML report.

pub mod figures;
pub mod html;
pub mod regret;
pub mod regret_table;
pub mod tables;
