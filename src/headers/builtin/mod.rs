//! The dialects that come with the crate.

mod bodies;
mod fields;
mod generic;

use super::dialect::Dialect;

/// All of them, in alphabetic order.
static ALL: [&Dialect; 35] = [
    &fields::AKAMAI,
    &generic::ATLASSIAN,
    &generic::AUTO,
    &bodies::AWS,
    &fields::AZURE_ARM,
    &fields::BINANCE,
    &bodies::BITRIX24,
    &fields::BREVO,
    &bodies::BYBIT,
    &fields::CALL_LIMIT_FRACTION,
    &fields::COINGLASS,
    &generic::DISCORD,
    &generic::GITHUB,
    &generic::GITLAB,
    &fields::GOHIGHLEVEL,
    &bodies::GOOGLE,
    &fields::HUBSPOT,
    &generic::IETF,
    &fields::IP_API,
    &bodies::KRAKEN,
    &bodies::META,
    &generic::PLAIN,
    &fields::RIOT,
    &fields::SHOPIFY_REST,
    &generic::SLACK,
    &fields::SP_API,
    &bodies::STACKEXCHANGE,
    &generic::STRIPE,
    &bodies::TELEGRAM,
    &bodies::VK,
    &generic::WILDBERRIES,
    &generic::DELTA_MS,
    &generic::X_TWITTER,
    &fields::YANDEX_DIRECT,
    &fields::YANDEX_MARKET,
];

impl Dialect {
    /// The dialect of every API that uses the fields of a known family and says nothing of its own: `auto`.
    ///
    /// It reads `RateLimit` and `RateLimit-Policy` of all drafts, `RateLimit-…`, `X-RateLimit-…`, `X-Rate-Limit-…` and
    /// `anthropic-ratelimit-…` with any unit, `Retry-After` and its kin, and in bodies `retry_after`, `retry_after_ms`,
    /// `parameters.retry_after` and Google's `retryDelay`.
    pub const fn auto() -> &'static Self {
        &generic::AUTO
    }

    /// One that comes with the crate, by its name.
    ///
    /// ```
    /// use request_balancer::headers::Dialect;
    ///
    /// assert_eq!(Dialect::named("auto"), Some(Dialect::auto()));
    /// assert_eq!(Dialect::named("Auto"), None);
    /// ```
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::all().find(|dialect| dialect.name == name)
    }

    /// All that come with the crate, in alphabetic order.
    ///
    /// ```
    /// use request_balancer::headers::Dialect;
    ///
    /// let names: Vec<_> = Dialect::all().map(Dialect::name).collect();
    /// assert!(names.is_sorted());
    /// assert!(["auto", "discord", "github", "ietf", "telegram", "wildberries"].iter().all(|name| names.contains(name)));
    /// ```
    pub fn all() -> impl ExactSizeIterator<Item = &'static Self> {
        ALL.iter().copied()
    }
}
