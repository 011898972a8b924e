//! What a server says only narrows, and is enough to be refused nothing where it says it all.

use arbitrary::{Arbitrary, Unstructured};
use request_balancer::Rules;
use request_balancer::engine::{
    Charge, Enter, Entry, Instant, KeyId, Nanos, NextStart, RequestId, RuleId, Scheduler, ServerReset, ServerWindow,
    Target,
};

use super::said::Said;
use super::zeros::Zeros;

const RULE: RuleId = RuleId(0);

/// A machine with one key, whose requests start at once or not at all.
struct Client {
    machine: Scheduler<()>,
    key: KeyId,
}

impl Client {
    fn new(rules: &str) -> Self {
        let rules: Rules = rules.parse().expect("rules");
        let mut machine = Scheduler::new(rules.plan());
        let key = machine.add_key(Instant::ZERO, 1);
        Self { machine, key }
    }

    fn start(&mut self, now: Instant) -> Option<RequestId> {
        if !self.machine.knows(self.key) {
            self.key = self.machine.add_key(now, 1);
        }
        match self.machine.enter(now, self.key, RULE, Entry::default()).expect("a place") {
            Enter::Started(id) => Some(id),
            Enter::Waiting(id) => {
                self.machine.withdraw(now, id);
                None
            }
        }
    }

    fn next(&mut self, now: Instant) -> NextStart {
        let key = Some(self.key).filter(|key| self.machine.knows(*key));
        self.machine.next_start(now, RULE, key)
    }
}

#[derive(Clone, Debug, Arbitrary)]
enum Op {
    Start,
    Read { request: u8, said: [Option<Said>; 2] },
    End(u8),
    Tell(Said, bool),
    Hold(u16),
    Advance(u16),
}

/// One client listens to whatever the server says, another one does not: what the first one starts the other could have
/// started too, at every instant. And where nothing is left of a window, nothing starts before its reset, unless a later
/// answer says otherwise.
pub(crate) fn observed(bytes: &[u8]) {
    const RULES: &str = "overall = '9/2s'\nper_key = ['6/1s', '11/5s']\nkey_concurrency = 5";
    let mut bytes = Unstructured::new(bytes);
    let (mut listens, mut deaf) = (Client::new(RULES), Client::new(RULES));
    let mut running: Vec<(RequestId, RequestId, Instant)> = Vec::new();
    let mut zeros = Zeros::default();
    let mut now = Instant::ZERO;
    while let Ok(op) = Op::arbitrary(&mut bytes) {
        match op {
            Op::Start => {
                if let Some(id) = listens.start(now) {
                    running.push((id, deaf.start(now).expect("room without what the server says"), now));
                }
            }
            Op::Read { request, said } => {
                if let Some((_, (id, _, sent))) = pick(&running, request) {
                    let windows = said.iter().flatten().map(Said::window);
                    assert!(listens.machine.observe(now, id, windows.clone()), "it runs");
                    windows.for_each(|window| zeros.say(window, sent, now));
                }
            }
            Op::End(request) => {
                if let Some((position, _)) = pick(&running, request) {
                    let (one, other, _) = running.swap_remove(position);
                    listens.machine.finish(now, one);
                    deaf.machine.finish(now, other);
                }
            }
            Op::Tell(said, is_key) => {
                let target = if is_key { Target::Key(listens.key) } else { Target::Overall };
                if listens.machine.observe_target(now, target, [said.window()]) {
                    zeros.say(said.window(), now, now);
                }
            }
            Op::Hold(millis) => {
                let until = after(now, millis);
                for client in [&mut listens, &mut deaf] {
                    client.machine.hold(now, Target::Overall, until);
                }
            }
            Op::Advance(millis) => {
                now = after(now, millis % 3_000);
                listens.machine.dispatch(now);
                deaf.machine.dispatch(now);
            }
        }
        let next = listens.next(now);
        zeros.judge(now, next);
        match (deaf.next(now), next) {
            (NextStart::Now, _) | (NextStart::At(_), NextStart::WhenOneEnds) => {}
            (NextStart::At(without), NextStart::At(with)) => assert!(without <= with, "{without:?}, {with:?}"),
            (NextStart::WhenOneEnds, next) => assert_ne!(next, NextStart::Now),
            (without, with) => panic!("{without:?} without what the server says, {with:?} with it"),
        }
        if bytes.is_empty() {
            break;
        }
    }
}

fn pick<T: Copy>(list: &[T], number: u8) -> Option<(usize, T)> {
    let position = usize::from(number).checked_rem(list.len())?;
    Some((position, list[position]))
}

fn after(now: Instant, millis: u16) -> Instant {
    now.saturating_add(Nanos::from_millis(millis.into()))
}

#[derive(Clone, Debug, Arbitrary)]
struct Setting {
    count: u8,
    others: u8,
    at_once: u8,
    millis: u16,
    grain: u8,
}

#[derive(Clone, Debug, Arbitrary)]
enum Step {
    Send,
    /// One on its way reaches the server.
    Reach(u8),
    /// An answer reaches the client.
    Answer(u8),
    /// An answer does not, and the client gives it up.
    Lose(u8),
    Advance(u16),
}

/// A request that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    id: RequestId,
    /// Of how many windows an answer was read before.
    known: usize,
    /// What the server answered: its window by number, how many are left, and the time to the next one.
    answer: Option<(u64, u32, Nanos)>,
}

/// A server of fixed windows tells all there is to know in each answer, the client's own rule is far too wide, and
/// requests and answers are on their way for as long as they like: nothing is refused of which the client could know.
pub(crate) fn told(bytes: &[u8]) {
    let mut bytes = Unstructured::new(bytes);
    let Ok(setting) = Setting::arbitrary(&mut bytes) else { return };
    let count = 1 + u32::from(setting.count % 12);
    let others = u32::from(setting.others) % count;
    let at_once = 1 + u32::from(setting.at_once) % (count - others);
    let period = Nanos::from_millis(u64::from(setting.millis % 5_000) + 1);
    let grain = Nanos::from_millis(1 << (setting.grain % 11));
    let (wide, millis) = (3 * count, period.get() / 1_000_000);
    let mut client = Client::new(&format!(
        "per_key = '{wide}/{millis}ms'\n[rules.call]\nkey_concurrency = {at_once}\n[rules.stay]\nunder = []"
    ));
    let mut now = Instant::ZERO;
    // Something of the key runs all the time, and the server has spoken: so what ends without a word is known of.
    assert!(matches!(client.machine.enter(now, client.key, RuleId(1), Entry::default()), Ok(Enter::Started(_))));
    client.machine.observe_target(now, Target::Key(client.key), [say(count, period, grain)]);
    let (mut window, mut left) = (0, count - others);
    let mut sent: Vec<Sent> = Vec::new();
    // The windows of which an answer was read.
    let mut read: Vec<u64> = Vec::new();
    let mut is_all_told = true;
    while let Ok(step) = Step::arbitrary(&mut bytes) {
        match step {
            Step::Send => {
                if let Some(id) = client.start(now) {
                    sent.push(Sent { id, known: read.len(), answer: None });
                }
            }
            Step::Reach(number) => {
                let on_way: Vec<usize> = (0..sent.len()).filter(|&one| sent[one].answer.is_none()).collect();
                let Some((_, one)) = pick(&on_way, number) else { continue };
                let present = now.as_nanos() / period.get();
                if present != window {
                    (window, left) = (present, count - others);
                }
                let could_know = is_all_told || read[..sent[one].known].contains(&window);
                assert!(
                    left > 0 || !could_know,
                    "{:?} is refused in window {window} at {now:?}: {setting:?}",
                    sent[one]
                );
                left = left.saturating_sub(1);
                sent[one].answer = Some((window, left, Nanos::new((window + 1) * period.get() - now.as_nanos())));
            }
            Step::Answer(number) | Step::Lose(number) => {
                let answered: Vec<usize> = (0..sent.len()).filter(|&one| sent[one].answer.is_some()).collect();
                let Some((_, one)) = pick(&answered, number) else { continue };
                let Sent { id, answer, .. } = sent.swap_remove(one);
                if let (Step::Answer(_), Some((of, left, resets))) = (step, answer) {
                    // Rounded up, as one that may be broken in between would be.
                    let after = Nanos::new(resets.get().next_multiple_of(grain.get()));
                    assert!(client.machine.observe(now, id, [say(left, after, grain)]));
                    if !read.contains(&of) {
                        read.push(of);
                    }
                } else {
                    is_all_told = false;
                }
                client.machine.finish(now, id);
            }
            Step::Advance(millis) => {
                now = after(now, millis % 2_000);
                client.machine.dispatch(now);
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
}

fn say(left: u32, after: Nanos, grain: Nanos) -> ServerWindow<'static> {
    ServerWindow {
        name: "window",
        charge: Charge::Requests,
        side: None,
        limit: None,
        left: Some(left),
        per: None,
        reset: Some(ServerReset { after, grain }),
    }
}
