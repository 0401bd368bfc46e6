//! Pictures of figures: SVG charts and one self-contained HTML page.
//!
//! What lives here: lines over a time or a parameter ([`LineChart`]), bars with their spread
//! ([`BarChart`]), and a page that holds such charts with text and tables ([`Page`]). A chart's
//! SVG stands alone. A page is one file that refers to nothing outside itself. Both follow the
//! light or dark mode of whoever looks at them, and print in light colours.
//!
//! What never lives here: a file, a clock, a dependency, or anything that knows what the figures
//! mean. The same input gives the same bytes. Nothing in the input panics: a number that is not
//! finite breaks a line, and text is escaped, or shortened where there is no room for it.
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
mod data;
mod line;
mod marks;
mod page;
mod svg;
mod text;
mod thin;
mod unit;

pub use axis::{Axis, Scale};
pub use bars::{Bar, BarChart, Group};
pub use line::{LineChart, Series, Shape};
pub use marks::Mark;
pub use page::{Chart, Page, Section, Table, generator_tag};
pub use unit::Unit;
