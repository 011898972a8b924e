//! A service of tower against an API like Discord's: a limit for each channel, told in each answer; one for the whole
//! bot, told in none; refusals that are about one channel, and such that are about everything.
//!
//! ```text
//! cargo run --example discord --features tower
//! ```
//!
//! Two requests are refused without warning: one since others crowd the same channel, which rests by itself, and one
//! since the bot's other half was too busy, upon which everything rests.

mod client;
mod count;
mod server;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use http_body_util::Empty;
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use request_balancer::middleware::{BalancerLayer, Route};
use request_balancer::{Balancer, Rules};
use tower::{Layer, ServiceExt, service_fn};

use count::{FixedWindow, ceil};
use server::{Answer, Api, Server, Verdict};

const SECOND: Duration = Duration::from_secs(1);
const CHANNELS: u32 = 3;
const MESSAGES: u32 = 20;
/// A second, of one channel and of all.
const OF_CHANNEL: u32 = 5;
const OF_BOT: u32 = 20;

struct Discord {
    began: Instant,
    bot: FixedWindow,
    channels: BTreeMap<String, FixedWindow>,
    seen: u32,
}

impl Api for Discord {
    fn answer(&mut self, request: &Request<Incoming>, now: Instant) -> Answer {
        self.seen += 1;
        match self.seen {
            8 => return refusal(Verdict::Surprise, "shared"),
            25 => return refusal(Verdict::Surprise, "global"),
            _ => {}
        }
        let new = || FixedWindow::new(OF_CHANNEL, SECOND, 0, self.began + SECOND);
        let channel = self.channels.entry(request.uri().path().to_owned()).or_insert_with(new);
        if !channel.take(now, 1) {
            return refusal(Verdict::Provoked, "user");
        }
        if !self.bot.take(now, 1) {
            return refusal(Verdict::Provoked, "global");
        }
        let reset = ceil(channel.resets_in(now), Duration::from_millis(1));
        let fields = vec![
            ("x-ratelimit-bucket", "5f3a".to_owned()),
            ("x-ratelimit-limit", OF_CHANNEL.to_string()),
            ("x-ratelimit-remaining", channel.left().to_string()),
            ("x-ratelimit-reset-after", format!("{}.{:03}", reset / 1_000, reset % 1_000)),
        ];
        Answer { verdict: Verdict::Answered, status: 200, fields, body: "{}" }
    }
}

fn refusal(verdict: Verdict, scope: &str) -> Answer {
    let mut fields = vec![("retry-after", "1".to_owned()), ("x-ratelimit-scope", scope.to_owned())];
    if scope == "global" {
        fields.push(("x-ratelimit-global", "true".to_owned()));
    }
    Answer { verdict, status: 429, fields, body: r#"{"message":"You are being rate limited.","retry_after":1.0}"# }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let began = Instant::now();
    let bot = FixedWindow::new(OF_BOT, SECOND, 0, began + SECOND);
    let server = Server::start(Discord { began, bot, channels: BTreeMap::new(), seen: 0 }).await?;

    let balancer = Balancer::new(Rules::from_file("examples/loopback/discord.toml")?);
    let layer =
        BalancerLayer::new(balancer, |request: &Request<Empty<Bytes>>| Route::new("message", request.uri().path()));
    let address = server.address;
    let service = layer.layer(service_fn(move |request| client::send(address, request)));

    let send = |channel: u32| {
        let request = Request::post(format!("/channels/{channel}")).header("host", "chat.example").body(Empty::new());
        let service = service.clone();
        async move { service.oneshot(request?).await.map_err(anyhow::Error::from) }
    };
    try_join_all((0..MESSAGES).flat_map(|_| 0..CHANNELS).map(send)).await?;
    let seconds = MESSAGES.div_ceil(OF_CHANNEL).max((CHANNELS * MESSAGES).div_ceil(OF_BOT));
    server.report("Discord", CHANNELS * MESSAGES, began.elapsed(), SECOND * (seconds - 1))
}
