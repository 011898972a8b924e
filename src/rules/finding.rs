//! What can be said about a rules file: codes, findings, and the error that carries them.

use std::fmt;
use std::sync::Arc;

macro_rules! codes {
    ($($variant:ident = $name:literal, $severity:ident, $meaning:literal;)*) => {
        /// The kind of a finding; its text form is stable and unique.
        ///
        /// ```
        /// use request_balancer::FindingCode;
        ///
        /// assert_eq!(FindingCode::UnknownField.to_string(), "unknown-field");
        /// assert_eq!(FindingCode::UnknownField.meaning(), "a field that the table does not have");
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum FindingCode {
            $(#[doc = $meaning] $variant,)*
        }

        impl FindingCode {
            /// Every code there is.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The code in kebab case.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// What the code stands for, in one line.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)*
                }
            }

            /// Whether findings of this code keep the rules from loading.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self {
                    $(Self::$variant => Severity::$severity,)*
                }
            }
        }
    };
}

codes! {
    UnreadableFile = "unreadable-file", Error, "the file cannot be read";
    Syntax = "syntax", Error, "the text is not TOML";
    UnknownField = "unknown-field", Error, "a field that the table does not have";
    WrongType = "wrong-type", Error, "a value of another type than the field takes";
    UnknownValue = "unknown-value", Error, "a word that is not among those the field takes";
    OutOfRange = "out-of-range", Error, "a number outside what the field takes";
    Zero = "zero", Error, "a zero where nothing could ever start";
    Empty = "empty", Error, "a list or table that says nothing";
    TwoMeanings = "two-meanings", Error, "two values for one thing";
    InvalidQuota = "invalid-quota", Error, "text that is not a quota";
    UnsupportedQuota = "unsupported-quota", Error, "a kind of quota that needs a cargo feature which is off";
    InvalidDuration = "invalid-duration", Error, "text that is not a length of time";
    DurationTooLong = "duration-too-long", Error, "a length of time beyond 584 years";
    DuplicateQuota = "duplicate-quota", Error, "the same quota twice in one list";
    InvalidName = "invalid-name", Error, "a name that cannot be used";
    DuplicateName = "duplicate-name", Error, "one name for two things, or twice in one list";
    UnknownLimit = "unknown-limit", Error, "`under` names a limit that the file does not have";
    UnknownRule = "unknown-rule", Error, "`keys` or `default_rule` names a rule that the file does not have";
    UnknownDialect = "unknown-dialect", Error, "a name that is no dialect's";
    UnknownUnit = "unknown-unit", Error, "a unit that `units` does not declare";
    UnknownZone = "unknown-zone", Error, "a time zone that does not exist";
    InvalidLane = "invalid-lane", Error, "a lane whose name is not the number of a priority";
    UnmeetableShare = "unmeetable-share", Error, "a lane's share that the number of lanes makes impossible";
    SharesTooLarge = "shares-too-large", Error, "the lower lanes' shares leave the top lane less than half";
    NotShareable = "not-shareable", Error, "a limit that no store keeps for many processes";
    TooMany = "too-many", Error, "more rules or limits than can be numbered";
    MarginTooLong = "margin-too-long", Warning, "a margin that is not shorter than the period it protects";
    UnreachableRate = "unreachable-rate", Warning, "a rate that a tighter outer limit never lets the rule reach";
    BeyondTimers = "beyond-timers", Warning, "a rate finer than timers resolve";
    DelayCut = "delay-cut", Warning, "a first retry delay that `max_delay` always cuts";
    UnusedLane = "unused-lane", Warning, "a lane that no rule is in";
    UnusedLimit = "unused-limit", Warning, "a named limit that no rule is under";
    UnusedUnit = "unused-unit", Warning, "a unit that nothing counts";
    UnusedShared = "unused-shared", Warning, "a `[shared]` table where no limit is shared";
    NothingAlone = "nothing-alone", Warning, "a shared limit of which no process gets anything while the store is away";
    NoEffect = "no-effect", Warning, "a setting that changes nothing";
}

impl fmt::Display for FindingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The rules load; they may not do what was meant.
    Warning,
    /// The rules do not load.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// Line and column in the text of the rules, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// One thing that is wrong or doubtful in the rules.
///
/// ```
/// use request_balancer::{FindingCode, Rules};
///
/// let findings = "[rules.chat]\npre_key = '1/1s'".parse::<Rules>().unwrap_err();
/// let finding = findings.iter().next().unwrap();
/// assert_eq!(finding.code(), FindingCode::UnknownField);
/// assert_eq!((finding.line(), finding.column()), (Some(2), Some(1)));
/// assert_eq!(finding.nearest(), Some("per_key"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    code: FindingCode,
    place: Option<Place>,
    path: String,
    found: String,
    allowed: String,
    nearest: Option<String>,
}

impl Finding {
    /// What kind of finding it is.
    #[must_use]
    pub fn code(&self) -> FindingCode {
        self.code
    }

    /// Whether it keeps the rules from loading.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// The line, counted from 1. `None` where the rules were built in code.
    #[must_use]
    pub fn line(&self) -> Option<u32> {
        self.place.map(|place| place.line)
    }

    /// The column in characters, counted from 1. `None` where the rules were built in code.
    #[must_use]
    pub fn column(&self) -> Option<u32> {
        self.place.map(|place| place.column)
    }

    /// The field, such as `rules.group.per_key`; empty where it is the text as a whole.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What was found.
    #[must_use]
    pub fn found(&self) -> &str {
        &self.found
    }

    /// What is allowed there, or what to do instead.
    #[must_use]
    pub fn allowed(&self) -> &str {
        &self.allowed
    }

    /// The valid name or value nearest to what was found, if one is near.
    #[must_use]
    pub fn nearest(&self) -> Option<&str> {
        self.nearest.as_deref()
    }

    pub(crate) fn new(code: FindingCode, found: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self { code, place: None, path: String::new(), found: found.into(), allowed: allowed.into(), nearest: None }
    }

    pub(crate) fn did_you_mean(mut self, nearest: Option<impl Into<String>>) -> Self {
        self.nearest = nearest.map(Into::into);
        self
    }

    pub(crate) fn at(mut self, path: impl Into<String>, place: Option<Place>) -> Self {
        self.path = path.into();
        self.place = place;
        self
    }

    pub(crate) fn place(&self) -> Option<Place> {
        self.place
    }

    /// Of a text that stands inside another one: where it is there, under a field of its own.
    #[cfg(feature = "sim")]
    pub(crate) fn inside(mut self, path: &str, moved: impl FnOnce(Place) -> Place) -> Self {
        self.path = if self.path.is_empty() { path.to_owned() } else { format!("{path}: {}", self.path) };
        self.place = self.place.map(moved);
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Place { line, column }) = self.place {
            write!(f, "{line}:{column}: ")?;
        }
        write!(f, "{}[{}]", self.severity(), self.code)?;
        if !self.path.is_empty() {
            write!(f, " {}", self.path)?;
        }
        write!(f, ": found {}; allowed: {}", self.found, self.allowed)?;
        match &self.nearest {
            Some(nearest) => write!(f, "; did you mean `{nearest}`?"),
            None => Ok(()),
        }
    }
}

/// Why rules did not load: all findings at once, at least one of them an error.
///
/// They come in the order of the file, warnings included; its text form has one finding a line.
///
/// ```
/// use request_balancer::Rules;
///
/// let findings = "overall = '0/1s'\nretries = 3".parse::<Rules>().unwrap_err();
/// assert_eq!(
///     findings.to_string(),
///     "1:11: error[zero] overall: found `0/1s`, a count of zero; allowed: a count from 1 to 4294967295\n\
///      2:1: error[unknown-field] retries: found `retries`; allowed: `overall`, `per_key`, `concurrency`, \
///      `key_concurrency`, `margin`, `count_from`, `units`, `fair_by`, `ban_guard`, `queue`, `default_rule`, \
///      `attempt_timeout`, `rules`, `limits`, `lanes`, `keys`, `dialects`, `retry`, `pool`, `shared`; did you mean `retry`?"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    file: Option<Arc<str>>,
    list: Box<[Finding]>,
}

impl Findings {
    /// The findings, in the order of the file.
    pub fn iter(&self) -> std::slice::Iter<'_, Finding> {
        self.list.iter()
    }

    /// The file they are about, if the rules came from one.
    #[must_use]
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// Puts `list` in the order of the text.
    ///
    /// The callers make sure that it contains an error.
    pub(crate) fn new(mut list: Vec<Finding>) -> Self {
        sort(&mut list);
        Self { file: None, list: list.into() }
    }

    #[cfg(feature = "sim")]
    pub(crate) fn into_list(self) -> Vec<Finding> {
        self.list.into_vec()
    }

    pub(crate) fn in_file(mut self, file: String) -> Self {
        self.file = Some(file.into());
        self
    }
}

/// By place, which leaves findings without one in the order in which they were found.
pub(crate) fn sort(list: &mut [Finding]) {
    list.sort_by_key(Finding::place);
}

impl<'a> IntoIterator for &'a Findings {
    type Item = &'a Finding;
    type IntoIter = std::slice::Iter<'a, Finding>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl From<Finding> for Findings {
    fn from(finding: Finding) -> Self {
        Self::new(vec![finding])
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, finding) in self.list.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            match &self.file {
                Some(file) if finding.place.is_some() => write!(f, "{file}:{finding}")?,
                Some(file) => write!(f, "{file}: {finding}")?,
                None => finding.fmt(f)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Findings {}
