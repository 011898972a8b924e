//! What quotas count besides requests: names declared in `units`.

use super::model::Rules;
use super::quota::REQUESTS;
use crate::engine::Charge;

/// Words that mean something else where the name of a unit may stand.
const WORDS: [&str; 4] = ["smooth", "burst", "window", "bucket"];

/// What the name of a unit can be.
pub(super) const ALLOWED: &str =
    "one word that begins with a small letter and stands for neither a length of time nor a kind of quota";

/// Whether a word has the shape of a unit's name: a letter, then letters, digits, `_` and `-`.
pub(super) fn is_word(word: &str) -> bool {
    word.starts_with(char::is_alphabetic) && word.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}

/// Whether a unit can have this name: not that of a time zone, a keyword or a length of time.
pub(super) fn is_name(word: &str) -> bool {
    is_word(word)
        && !word.starts_with(char::is_uppercase)
        && !WORDS.contains(&word)
        && humantime::parse_duration(&format!("1{word}")).is_err()
}

impl Rules {
    /// The declared units, in order: what a request costs in each stands at the same position in
    /// [`Entry::units`](crate::engine::Entry::units). The unit that every request has, `requests`, is not among them.
    pub fn units(&self) -> impl ExactSizeIterator<Item = &str> {
        self.model().units.iter().map(|unit| &**unit)
    }

    /// What the engine calls the unit of this name, `requests` included. `None`: it was never declared.
    ///
    /// ```
    /// use request_balancer::Rules;
    /// use request_balancer::engine::Charge;
    ///
    /// let rules: Rules = "units = ['tokens']\noverall = ['500/min', '90000/min tokens']".parse()?;
    /// assert_eq!(rules.unit("tokens"), Some(Charge::Unit(0)));
    /// assert_eq!(rules.unit("requests"), Some(Charge::Requests));
    /// assert_eq!(rules.unit("token"), None);
    /// # Ok::<(), request_balancer::Findings>(())
    /// ```
    #[must_use]
    pub fn unit(&self, name: &str) -> Option<Charge> {
        self.model().charge(name)
    }

    /// The unit in which turns are measured.
    #[must_use]
    pub fn fair_by(&self) -> &str {
        self.model().fair_by.as_deref().unwrap_or(REQUESTS)
    }
}
