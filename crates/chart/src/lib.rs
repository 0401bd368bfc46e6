//! Charts: SVG images and one self-contained HTML page.
//!
//! The crate has lines over a time or a parameter ([`LineChart`]), bars with their spread
//! ([`BarChart`]), and a page that holds such charts with text and tables ([`Page`]). The SVG of a
//! chart stands alone. A page is one file without external references. Both follow the light or
//! dark mode of the viewer, and print in light colours.
//!
//! The crate uses no file, clock or dependency, and does not know the meaning of the figures. The
//! same input gives the same bytes. No input panics: a number that is not finite breaks a line;
//! text is escaped, and truncated if it does not fit.
//!
//! ```
//! use bankfull_chart::{Axis, LineChart, Page, Section, Series, Unit};
//!
//! let chart = LineChart {
//!     title: "Throughput".to_owned(),
//!     x: Axis::new("Time", Unit::Seconds),
//!     y: Axis::new("Received", Unit::BitsPerSec),
//!     series: vec![Series::line("flow 1", vec![(0.0, 40e6), (1.0, 92e6), (2.0, 94e6)])],
//!     marks: Vec::new(),
//! };
//! assert!(chart.to_svg().starts_with("<svg"));
//!
//! let section = Section { charts: vec![chart.into()], ..Section::new("One flow") };
//! let page = Page { sections: vec![section], ..Page::new("A run") };
//! assert!(page.to_html().starts_with("<!doctype html>"));
//! ```

mod axis;
mod bars;
mod downsample;
mod legend;
mod line;
mod marks;
mod page;
mod plot;
mod script_data;
mod series;
mod svg;
mod text;
mod unit;

pub use axis::{Axis, Scale};
pub use bars::{Bar, BarChart, Group};
pub use line::LineChart;
pub use marks::Mark;
pub use page::{Chart, Page, Section, Table, generator_tag};
pub use series::{Series, Shape};
pub use unit::Unit;
