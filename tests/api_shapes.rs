//! Shapes of user code that must compile, and what the public types promise about threads and size.

#![cfg(feature = "tokio")]

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use request_balancer::{
    Attempt, Balancer, Classify, Error, Failure, Key, Outcome, Permit, Refused, Request, RuleHandle, Rules, Scope,
    Snapshot, Target, Ticket, Verdict,
};

const RULES: &str = "[rules]\nsend = '100/1s'\nread = '100/1s'\n";

fn balancer() -> Balancer {
    Balancer::new(RULES.parse::<Rules>().unwrap())
}

/// What an HTTP client's error looks like: opaque, with questions to ask.
#[derive(Debug)]
struct Http {
    status: u16,
    timed_out: bool,
}

impl fmt::Display for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status {}", self.status)
    }
}

impl std::error::Error for Http {}

#[derive(Debug, PartialEq)]
enum Api {
    TooManyRequests { retry_after: Duration },
    Unavailable,
    Refused(Refused),
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Api {}

impl From<Refused> for Api {
    fn from(reason: Refused) -> Self {
        Self::Refused(reason)
    }
}

impl Classify for Api {
    fn classify(&self) -> Verdict {
        match self {
            Self::TooManyRequests { retry_after } => Verdict::Retry { after: Some(*retry_after), scope: None },
            Self::Unavailable => Verdict::Transient,
            Self::Refused(_) => Verdict::Permanent,
        }
    }
}

struct Bot;

impl Bot {
    async fn send(&self, chat: i64, text: &str) -> Result<usize, Api> {
        tokio::task::yield_now().await;
        match chat {
            0 => Err(Api::Unavailable),
            -429 => Err(Api::TooManyRequests { retry_after: Duration::from_secs(7) }),
            _ => Ok(text.len()),
        }
    }

    async fn fetch(&self, status: u16) -> Result<u16, Http> {
        if status < 400 { Ok(status) } else { Err(Http { status, timed_out: status == 408 }) }
    }
}

#[tokio::test(start_paused = true)]
async fn the_page_of_the_readme() {
    let (balancer, bot, chat) = (balancer(), Bot, 42);
    let length = balancer
        .run("send", chat, async |attempt| match bot.send(chat, "hello").await {
            Err(Api::TooManyRequests { retry_after }) => Err(attempt.retry(retry_after)),
            other => Ok(other?),
        })
        .await;
    assert_eq!(length, Ok(5));
    assert_eq!(balancer.call("send", chat, |_| bot.send(chat, "hello")).await, Ok(5));
}

#[tokio::test(start_paused = true)]
async fn errors_of_http_clients() {
    let (balancer, bot) = (balancer(), Bot);
    let answer = balancer
        .run("send", "host", async |attempt| match bot.fetch(503).await {
            Err(error) if error.status == 429 => Err(attempt.retry(None).because(error)),
            Err(error) if error.timed_out => Err(Failure::ambiguous(error)),
            Err(error) if error.status >= 500 => Err(Failure::transient(error).hold(Scope::Key)),
            other => Ok(other?),
        })
        .await;
    let Err(Error::GaveUp { reason: Refused::Attempts, attempts: 3, last: Some(Http { status: 503, .. }) }) = answer
    else {
        panic!("{answer:?}");
    };
    let verdict = |error: &Http| if error.status == 404 { Verdict::Permanent } else { Verdict::Transient };
    let answer = balancer.request("send", "host").classify(verdict).call(|_| bot.fetch(404)).await;
    assert!(matches!(answer, Err(Error::Failed(Http { status: 404, .. }))));
    // What `?` passes on is classified too.
    let request = balancer.request("send", "host").classify(verdict);
    let answer = request.run(async |_| Ok(bot.fetch(500).await?)).await;
    assert!(matches!(answer, Err(Error::GaveUp { attempts: 3, .. })));
}

#[tokio::test(start_paused = true)]
async fn anyhow_and_boxed_errors() {
    async fn fails() -> anyhow::Result<u8> {
        anyhow::bail!("no luck")
    }
    async fn boxed() -> Result<u8, Box<dyn std::error::Error + Send + Sync>> {
        Err("no luck".into())
    }
    async fn asks(balancer: &Balancer) -> anyhow::Result<u8> {
        Ok(balancer.run("send", 1, async |_| Ok(fails().await?)).await?)
    }
    let balancer = balancer();
    assert_eq!(asks(&balancer).await.unwrap_err().to_string(), "no luck");
    let error = balancer.run("send", 1, async |_| Ok(boxed().await?)).await.unwrap_err();
    assert_eq!(Box::<dyn std::error::Error + Send + Sync>::from(error).to_string(), "no luck");
    let parsed = balancer.run("send", 1, async |_| Ok("x".parse::<i32>()?)).await;
    assert!(matches!(parsed, Err(Error::Failed(std::num::ParseIntError { .. }))));
}

#[tokio::test(start_paused = true)]
async fn captures_are_borrowed() {
    let (balancer, bot) = (balancer(), Bot);
    let text = String::from("hello");
    let mut attempts = Vec::new();
    let answer = balancer
        .run("send", 0, |attempt: Attempt| {
            attempts.push(attempt.number());
            let (bot, text) = (&bot, &text);
            async move { bot.send(0, text).await.map_err(Failure::transient) }
        })
        .await;
    assert!(answer.is_err());
    assert_eq!(attempts, [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn inside_tasks() {
    let (balancer, bot) = (balancer(), Arc::new(Bot));
    let task = tokio::spawn({
        let (balancer, bot) = (balancer.clone(), Arc::clone(&bot));
        async move { balancer.run("send", 7, async |_| Ok(bot.send(7, "in a task").await?)).await }
    });
    assert_eq!(task.await.unwrap(), Ok(9));
    let ticket = balancer
        .request("send", 7)
        .submit(move |_| {
            let bot = Arc::clone(&bot);
            async move { Ok(bot.send(7, "submitted").await?) }
        })
        .unwrap();
    assert_eq!(tokio::spawn(ticket).await.unwrap(), Ok(9));
}

#[tokio::test(start_paused = true)]
async fn many_at_once() {
    let (balancer, bot) = (balancer(), Bot);
    let chats = [1_i64, 2, 3, 4];
    let sent: Vec<_> = futures::stream::iter(chats)
        .map(|chat| balancer.call("send", chat, |_| bot.send(1, "hello")))
        .buffer_unordered(2)
        .collect()
        .await;
    assert_eq!(sent, [Ok(5), Ok(5), Ok(5), Ok(5)]);
    let (balancer, bot) = (&balancer, &bot);
    let hey = |chat| balancer.run("send", chat, move |_| async move { Ok(bot.send(chat, "hey").await?) });
    let all = join_all(chats.map(hey)).await;
    assert_eq!(all, [Ok(3), Ok(3), Ok(3), Ok(3)]);
}

trait Sender: Send + Sync {
    fn send<'a>(&'a self, chat: i64, text: &'a str) -> Pin<Box<dyn Future<Output = Result<usize, Api>> + Send + 'a>>;
}

struct Limited {
    balancer: Balancer,
    bot: Bot,
}

impl Sender for Limited {
    fn send<'a>(&'a self, chat: i64, text: &'a str) -> Pin<Box<dyn Future<Output = Result<usize, Api>> + Send + 'a>> {
        Box::pin(async move {
            self.balancer.call("send", chat, |_| self.bot.send(chat, text)).await.map_err(Error::flatten)
        })
    }
}

struct Client {
    send: RuleHandle,
    read: RuleHandle,
    bot: Bot,
}

impl Client {
    fn new(balancer: &Balancer) -> Result<Self, Refused> {
        Ok(Self { send: balancer.rule("send")?, read: balancer.rule("read")?, bot: Bot })
    }

    async fn send(&self, chat: i64, text: &str) -> Result<usize, Error<Api>> {
        self.send.run(chat, async |_| Ok(self.bot.send(chat, text).await?)).await
    }

    async fn read(&self) -> Result<u16, Error<Http>> {
        self.read.request(()).no_retry().run(async |_| Ok(self.bot.fetch(200).await?)).await
    }
}

#[tokio::test(start_paused = true)]
async fn behind_traits_and_in_structs() {
    let senders: HashMap<&str, Box<dyn Sender>> =
        HashMap::from([("limited", Box::new(Limited { balancer: balancer(), bot: Bot }) as Box<dyn Sender>)]);
    assert_eq!(senders["limited"].send(1, "boxed").await, Ok(5));
    assert_eq!(senders["limited"].send(0, "boxed").await, Err(Api::Unavailable));
    let client = Client::new(&balancer()).unwrap();
    assert_eq!(client.send(1, "hello").await, Ok(5));
    assert_eq!(client.read().await.unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn permits_in_straight_code() {
    async fn straight(balancer: &Balancer) -> Result<u32, Refused> {
        let mut permit: Permit = balancer.request("send", 1).max_wait(Duration::from_secs(60)).acquire().await?;
        while permit.number() < 3 {
            permit = permit.retry(Duration::from_secs(1)).await?;
        }
        Ok(permit.number())
    }
    assert_eq!(straight(&balancer()).await, Ok(3));
    let tried: Result<Permit, Refused> = balancer().request("send", 1).try_acquire();
    assert!(tried.is_ok());
}

#[tokio::test(start_paused = true)]
async fn keys_of_every_kind() {
    let balancer = balancer();
    let long = "a name of more than twenty-two bytes".to_owned();
    let key = Key::from("kept");
    async fn ok(_: Attempt) -> Outcome<(), Api> {
        Ok(())
    }
    balancer.run("send", 1_u8, ok).await.unwrap();
    balancer.run("send", -1_i64, ok).await.unwrap();
    balancer.run("send", 1_usize, ok).await.unwrap();
    balancer.run("send", "text", ok).await.unwrap();
    balancer.run("send", &long, ok).await.unwrap();
    balancer.run("send", long.clone(), ok).await.unwrap();
    balancer.run("send", Arc::<str>::from("shared"), ok).await.unwrap();
    balancer.run("send", Cow::Borrowed("cow"), ok).await.unwrap();
    balancer.run("send", &key, ok).await.unwrap();
    balancer.run("send", key, ok).await.unwrap();
    balancer.run("send", (), ok).await.unwrap();
    balancer.run("send", ("account", 7, "chat"), ok).await.unwrap();
    balancer.run("send", (("a", 1), "b", 2_u16, &long), ok).await.unwrap();
    balancer.run("send", IpAddr::from(Ipv4Addr::LOCALHOST), ok).await.unwrap();
    balancer.run("send", Ipv6Addr::LOCALHOST, ok).await.unwrap();
    assert_eq!(balancer.snapshot().keys, 12);
}

static BALANCER: LazyLock<Balancer> = LazyLock::new(balancer);

#[test]
fn a_static_needs_no_runtime_where_nothing_waits() {
    assert!(BALANCER.request("send", 1).try_acquire().is_ok());
    let answer = futures::executor::block_on(BALANCER.run("send", 2, async |_| Ok::<_, Failure<Api>>(2)));
    assert_eq!(answer, Ok(2));
}

#[test]
fn threads_and_sizes() {
    fn handle<T: Send + Sync + Unpin + Clone + fmt::Debug + 'static>() {}
    fn value<T: Send + Sync + Unpin + fmt::Debug + 'static>() {}
    fn future<T: Send>(future: T) -> usize {
        size_of_val(&future)
    }
    handle::<Balancer>();
    handle::<RuleHandle>();
    handle::<Key>();
    handle::<Target>();
    handle::<Snapshot>();
    handle::<Refused>();
    value::<Permit>();
    value::<Attempt>();
    value::<Request<'static>>();
    value::<Error<Api>>();
    value::<Failure<Api>>();
    fn ticket<T: Send + Unpin + fmt::Debug + 'static>() {}
    ticket::<Ticket<(), Api>>();
    assert_eq!(size_of::<Balancer>(), 8);
    assert_eq!(size_of::<Key>(), 24);
    assert_eq!(size_of::<Option<Key>>(), 24);

    /// With the feature a request remembers where it is counted.
    const METER: usize = if cfg!(feature = "metrics") { 8 } else { 0 };
    let balancer = balancer();
    let run = future(balancer.run("send", 1, |_| std::future::ready(Outcome::<(), ()>::Ok(()))));
    assert!(run <= 200 + METER, "the future of `run` has {run} bytes beside its attempt");
    let acquire = future(balancer.request("send", 1).acquire());
    assert!(acquire <= 160 + METER, "the future of `acquire` has {acquire} bytes");
    future(balancer.close(Duration::ZERO));
}
