//! Metrics of a copy, as a file for the textfile collector of Prometheus' node exporter.

use super::exposition::Format;
use super::gauge_value;
use crate::exit::Exit;
use bankfull::{Error, ErrorKind, Summary};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// End of a copy.
pub(crate) struct CopyEnd<'r> {
    pub(crate) result: &'r Result<Summary, Error>,
    pub(crate) exit: Exit,
    pub(crate) elapsed: Duration,
}

impl CopyEnd<'_> {
    /// Writes the metrics, in place of those of an earlier copy.
    ///
    /// The name of the file without its extension is the label `copy`.
    ///
    /// # Errors
    /// [`ErrorKind::Local`] for a file that cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Error> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut registry = Registry::default();
        self.register(registry.sub_registry_with_prefix("bankfull_cp"), &name, now);
        let text = Format::Text
            .encode(&registry)
            .map_err(|e| Error::new(ErrorKind::Local, format!("cannot encode the metrics: {e}")))?;
        replace(path, text.as_bytes())
            .map_err(|e| Error::local(format!("cannot write the metrics {}", path.display()), &e))
    }

    fn register(&self, registry: &mut Registry, name: &str, now: Duration) {
        let mut add = |metric: &str, help: &str, unit: Option<Unit>, value: f64| {
            let family = Family::<[(&'static str, String); 1], Gauge<f64, AtomicU64>>::default();
            family.get_or_create(&[("copy", name.to_owned())]).set(value);
            match unit {
                Some(unit) => registry.register_with_unit(metric, help, unit, family),
                None => registry.register(metric, help, family),
            }
        };
        let is_success = u8::from(self.exit == Exit::Done);
        add("success", "1 if the copy ended without a failure", None, is_success.into());
        add("exit_code", "Exit code of the command", None, self.exit.code().into());
        let at = "Time of its end, since 1970";
        add("end_timestamp", at, Some(Unit::Seconds), now.as_secs_f64());
        let took = self.elapsed.as_secs_f64();
        add("duration", "Time that it took", Some(Unit::Seconds), took);
        let Ok(summary) = self.result else { return };
        let carried = summary.bytes.0 as f64;
        add("transferred", "Bytes verified at the destination", Some(Unit::Bytes), carried);
        let goodput = summary.goodput().bytes_per_sec() as f64;
        add("goodput_bytes_per_second", "Goodput", None, goodput);
        let retransmits = summary.retransmits as f64;
        add("retransmits", "Segments that the sender retransmitted", None, retransmits);
        let files = Family::<[(&'static str, String); 2], Gauge>::default();
        for (outcome, number) in [
            ("copied", summary.files),
            ("unchanged", summary.skipped_files),
            ("failed", summary.failed_files),
        ] {
            let labels = [("copy", name.to_owned()), ("outcome", outcome.to_owned())];
            files.get_or_create(&labels).set(gauge_value(number));
        }
        registry.register("files", "Files, by outcome", files);
    }
}

/// Replaces a file at once: a collector never reads a part of it.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temp = path.with_file_name(format!(".{name}-{}", std::process::id()));
    // Of an earlier process of this number.
    let _ = fs::remove_file(&temp);
    let written = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o644).open(&temp)?;
        // Whatever the umask: the collector is another user.
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
        file.write_all(content)?;
        fs::rename(&temp, path)
    };
    written().inspect_err(|_| drop(fs::remove_file(&temp)))
}
