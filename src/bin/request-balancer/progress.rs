//! How far runs are, where somebody looks.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use request_balancer::sim::{Policy, Progress};

/// A bar on standard error; nothing if that is not a terminal.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn new(policy: Policy) -> Self {
        let looks = std::io::stderr().is_terminal();
        let target = if looks { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(1), target);
        let colour = if std::env::var_os("NO_COLOR").is_none() { ".cyan" } else { "" };
        let template = format!("{{prefix}} [{{bar:30{colour}}}] {{percent}} % {{msg}}");
        // The template is fixed; with another one the bar only looks different.
        let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("=> "));
        bar.set_prefix(policy.as_str());
        Self(bar)
    }

    /// By the time of the run where that has an end, else by the calls that started.
    pub(crate) fn show(&self, progress: Progress) {
        let Progress { now, until, started, calls, .. } = progress;
        let (done, all) = until.map_or((started, calls), |until| (now.as_nanos(), until.as_nanos()));
        self.0.set_length(all);
        self.0.set_position(done.min(all));
        self.0.set_message(format!("{started} starts, {} s of virtual time", now.as_nanos() / 1_000_000_000));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
