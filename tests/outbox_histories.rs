//! More keys than are known, of three lanes, through holds, failures, replaced rules and restarts: each message is sent, in
//! the order of its key. `OUTBOX_SEEDS` in the environment is how many histories there are.
#![cfg(feature = "outbox")]

mod post;

use std::collections::BTreeMap;
use std::env;
use std::time::Duration;

use post::{NOON, Post, Reader, Way, open, secs};
use request_balancer::outbox::{MemoryStore, Outbox};
use request_balancer::{Balancer, Rules, Target};
use tokio::time::{Instant, sleep};

const NAMES: [&str; 3] = ["a", "b", "c"];

const LIVES: usize = 2;

/// Draws numbers that look random.
struct Rng(u64);

impl Rng {
    const fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Each rule in some lane.
fn rules(rng: &mut Rng) -> Rules {
    let rule = |name| format!("{name} = {{ overall = '3000/1s', priority = {} }}\n", 1 + rng.below(3));
    let rules: String = NAMES.into_iter().map(rule).collect();
    format!("[retry]\njitter = 0.0\nattempts = 100\n[rules]\n{rules}").parse().unwrap()
}

/// What was put: of which queue, by id.
type Put = BTreeMap<u64, (&'static str, u32)>;

/// A run of the program, which ends well or does not.
async fn live(post: Post, balancer: &Balancer, rng: &mut Rng, put: &mut Put) {
    for _ in 0..8 {
        let name = NAMES[rng.below(3) as usize];
        match rng.below(6) {
            0 => balancer.hold(Target::rule(name), secs(rng.below(4))).unwrap(),
            1 => balancer.replace_rules(rules(rng)),
            2 => balancer.release(Target::rule(name)).unwrap(),
            _ => {}
        }
        let (first, many) = (rng.below(20_000) as u32, [1, 300, 9_000][rng.below(3) as usize]);
        // The first ones are many, so that none fails for long.
        let (many, fails) = if put.is_empty() { (9_000, true) } else { (many, rng.below(4) == 0) };
        let text = if fails { "fails" } else { "passes" }.to_owned();
        let ids = post.put_all((first..first + many).map(|key| (name, key, &text))).await.unwrap();
        put.extend(ids.iter().map(|id| id.get()).zip((first..).map(|key| (name, key))));
        sleep(Duration::from_millis(rng.below(1_500))).await;
    }
    if rng.below(2) == 0 {
        post.close(secs(1)).await.unwrap();
    }
}

async fn history(seed: u64) {
    let mut rng = Rng(seed * 7_919 + 1);
    let (reader, store, begun, mut put) = (Reader::new(), MemoryStore::new(), Instant::now(), Put::new());
    reader.tell("fails", (0..2_000).map(|_| if rng.below(2) == 0 { Way::Transient } else { Way::Retry(2) }));
    for life in 0..=LIVES {
        let balancer = Balancer::builder(rules(&mut rng)).seed(seed).build();
        let post = open(Outbox::builder(&balancer).wall(NOON + begun.elapsed()), store.clone(), &reader).await;
        if life < LIVES {
            live(post, &balancer, &mut rng, &mut put).await;
            // Whatever the last life had on its way is let go of.
            sleep(secs(1)).await;
            continue;
        }
        for _ in 0..50 {
            post.flush().await;
            sleep(secs(10)).await;
        }
        assert_eq!((post.drain().await.unwrap(), post.dead().await.unwrap()), (Vec::new(), Vec::new()), "seed {seed}");
    }
    let (mut attempts, mut last): (BTreeMap<u64, usize>, BTreeMap<_, u64>) = Default::default();
    for seen in reader.seen() {
        let attempts = attempts.entry(seen.id).or_default();
        *attempts += 1;
        if seen.text == "fails" {
            // Others may pass it meanwhile.
            continue;
        }
        if *attempts > 1 {
            assert!(seen.maybe_delivered, "seed {seed}: {seen:?} again");
            continue;
        }
        let before = last.insert(put[&seen.id], seen.id);
        assert!(before < Some(seen.id), "seed {seed}: {seen:?} after {before:?}");
    }
    assert_eq!(attempts.len(), put.len(), "seed {seed}: each was sent");
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_each_message_is_sent_in_its_order() {
    let seeds = env::var("OUTBOX_SEEDS").map_or(1, |seeds| seeds.parse().unwrap());
    for seed in 1..=seeds {
        history(seed).await;
    }
}
