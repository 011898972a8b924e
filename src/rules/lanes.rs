//! The lanes of checked rules, as their file describes them.

use std::time::Duration;

use super::model::{CheckedLane, Pace, Rules, Share};

impl Rules {
    /// The lanes that rules are in, most urgent first, whether or not the file says something about them.
    ///
    /// ```
    /// use request_balancer::Rules;
    /// use std::time::Duration;
    ///
    /// let rules: Rules = "
    ///     overall = '30/1s'
    ///     [rules]
    ///     chat = {}
    ///     news = { priority = 2 }
    ///     [lanes.2]
    ///     name = 'bulk'
    ///     share = '1/10'
    /// "
    /// .parse()?;
    /// let [chat, bulk] = &rules.lanes()[..] else { panic!("two lanes") };
    /// assert_eq!((chat.priority(), chat.name(), chat.share()), (1, None, (1, 20)));
    /// assert_eq!((bulk.priority(), bulk.name(), bulk.share()), (2, Some("bulk"), (1, 10)));
    /// assert_eq!(bulk.pace(), Some(Duration::from_secs(60)));
    /// # Ok::<(), request_balancer::Findings>(())
    /// ```
    #[must_use]
    pub fn lanes(&self) -> Vec<CheckedLane> {
        self.model().used_lanes()
    }
}

impl CheckedLane {
    /// The priority of its rules; a lower number is more urgent.
    #[must_use]
    pub const fn priority(&self) -> u32 {
        self.priority
    }

    /// Its name in metrics and messages. `None`: the priority.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The part of the grants that it gets while it is ready: so many of so many, in lowest terms. Of the most urgent lane
    /// it means nothing.
    #[must_use]
    pub const fn share(&self) -> (u32, u32) {
        let Share { part, of } = self.share;
        (part, of)
    }

    /// Up to which length of windows its starts are spread evenly, unless it is the most urgent one of those that draw on
    /// them. `None`: they are not, and nothing is left free for more urgent lanes.
    #[must_use]
    pub fn pace(&self) -> Option<Duration> {
        match self.pace {
            Pace::UpTo(horizon) => Some(horizon.into()),
            Pace::Off => None,
        }
    }
}
