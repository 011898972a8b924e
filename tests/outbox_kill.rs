//! A program with an outbox that is killed again and again, some times while it makes its file; and files as they are on a
//! real disk.
#![cfg(all(feature = "outbox", unix))]

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, exit};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use request_balancer::outbox::{Delivery, Message, Outbox, OutboxFile, StoreError};
use request_balancer::{Balancer, Failure, Outcome, Rules};

const KILLS: u64 = 30;

/// Where a child finds what it is to do.
const CHILD: &str = "OUTBOX_KILL_CHILD";

/// A folder of its own that goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("outbox-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder for temporary files");
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("outbox.redb")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Id, number, attempt, and whether it may have been delivered before.
type Received = (u64, u64, u32, bool);

fn balancer() -> Balancer {
    Balancer::new("[rules]\nsend = '1000000/1s'".parse::<Rules>().expect("sound rules"))
}

/// Tells a server, which answers with a byte.
fn tell(server: &str, message: &Message<u64>) -> Outcome<u64, std::io::Error> {
    let call = || -> std::io::Result<()> {
        let mut stream = TcpStream::connect(server)?;
        let (number, maybe) = (message.number(), u8::from(message.maybe_delivered()));
        writeln!(stream, "{} {} {number} {maybe}", message.id(), message.body())?;
        stream.read_exact(&mut [0])
    };
    call().map_err(Failure::transient)?;
    Ok(*message.body())
}

/// The program that is killed: puts numbers, says which ones were taken, and delivers them. `last`: puts none and ends when
/// all are delivered.
fn child(file: &Path, server: &str, first: u64, last: bool) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (server, balancer) = (server.to_owned(), balancer());
        let outbox = Outbox::open(file, &balancer, move |message: Message<u64>| {
            let server = server.clone();
            async move { tell(&server, &message) }
        });
        let outbox = outbox.await.expect("a file in order");
        if last {
            while !outbox.is_empty() {
                outbox.flush().await;
            }
            outbox.close(Duration::from_secs(1)).await.expect("a disk in order");
            exit(0);
        }
        let mut number = first;
        loop {
            let puts = (number..number + 8).map(|number| outbox.put("send", number % 5, &number).into_future());
            for (put, number) in futures::future::join_all(puts).await.into_iter().zip(number..) {
                match put {
                    Ok(Delivery::Sent(_) | Delivery::Queued(_)) => println!("{number}"),
                    other => eprintln!("{number}: {other:?}"),
                }
            }
            number += 8;
        }
    });
}

#[test]
fn real_clock_a_program_that_is_killed_loses_nothing_and_repeats_only_what_it_marks() {
    if let Ok(told) = env::var(CHILD) {
        let mut parts = told.split(' ');
        let mut next = || parts.next().expect("four parts").to_owned();
        let (file, server, first, last) = (next(), next(), next(), next());
        return child(Path::new(&file), &server, first.parse().expect("a number"), last == "true");
    }
    let folder = Folder::new("kill");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = listener.local_addr().expect("an address").to_string();
    let received: Arc<Mutex<Vec<Received>>> = Arc::default();
    thread::spawn({
        let received = Arc::clone(&received);
        move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { continue };
                let received = Arc::clone(&received);
                thread::spawn(move || {
                    let mut line = String::new();
                    let mut reader = BufReader::new(stream);
                    if reader.read_line(&mut line).is_ok_and(|_| line.ends_with('\n')) {
                        let parts: Vec<u64> =
                            line.split_whitespace().map(|part| part.parse().expect("numbers")).collect();
                        received.lock().unwrap().push((parts[0], parts[1], parts[2] as u32, parts[3] != 0));
                        let _ = reader.into_inner().write_all(&[1]);
                    }
                });
            }
        }
    });
    let start = |first: u64, last: bool| {
        let told = format!("{} {server} {first} {last}", folder.file().display());
        let mut command = Command::new(env::current_exe().expect("this program"));
        command
            .args(["--exact", "--nocapture"])
            .arg("real_clock_a_program_that_is_killed_loses_nothing_and_repeats_only_what_it_marks");
        command.env(CHILD, told).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("a child")
    };
    let mut taken = Vec::new();
    let mut draw = 0x1234_5678_9abc_def1_u64;
    for kill in 0..KILLS {
        draw ^= draw << 13;
        draw ^= draw >> 7;
        draw ^= draw << 17;
        // The first ones fall into the making of the file.
        let span = if kill < 8 { kill * 3 + draw % 4 } else { 30 + draw % 250 };
        let mut child = start(kill * 1_000_000, false);
        let output = child.stdout.take().expect("a pipe");
        let reading = thread::spawn(move || {
            let lines = BufReader::new(output).lines();
            lines.map_while(Result::ok).filter_map(|line| line.parse().ok()).collect::<Vec<u64>>()
        });
        thread::sleep(Duration::from_millis(span));
        child.kill().expect("a child to kill");
        child.wait().expect("its end");
        taken.extend(reading.join().expect("no panic"));
    }
    let status = start(0, true).wait().expect("its end");
    assert!(status.success());
    let mut file = OutboxFile::open(folder.file()).expect("a file in order");
    assert_eq!((file.len(), file.dead().expect("a file in order").len()), (0, 0));
    assert!(fs::read_dir(&folder.0).expect("a folder").count() == 1, "nothing is left of what was not finished");

    let received = received.lock().unwrap();
    let mut deliveries: BTreeMap<u64, Vec<(u64, u32, bool)>> = BTreeMap::new();
    for (id, number, attempt, maybe) in received.iter() {
        deliveries.entry(*number).or_default().push((*id, *attempt, *maybe));
    }
    assert!(taken.len() > 100, "only {} were put", taken.len());
    for number in &taken {
        assert!(deliveries.contains_key(number), "{number} is lost");
    }
    let mut repeated = 0;
    for (number, deliveries) in &deliveries {
        for (position, (id, attempt, maybe)) in deliveries.iter().enumerate() {
            assert_eq!(*id, deliveries[0].0, "{number}");
            assert!(position == 0 || *maybe, "{number} was repeated without a mark: {deliveries:?}");
            assert!(position == 0 || *attempt > deliveries[position - 1].1, "{number}: {deliveries:?}");
        }
        repeated += deliveries.len() - 1;
    }
    eprintln!("{} put in {KILLS} lives, {} delivered, {repeated} twice and marked", taken.len(), deliveries.len());
}

#[tokio::test]
async fn a_second_opener_is_told_at_once() {
    let (folder, balancer) = (Folder::new("second"), balancer());
    let open = || {
        Outbox::open(folder.file(), &balancer, async |message: Message<u64>| {
            Ok::<_, Failure<String>>(message.into_body())
        })
    };
    let first = open().await.unwrap();
    let path = folder.file().display().to_string();
    assert_eq!(open().await.unwrap_err(), StoreError::InUse { path: path.clone() });
    assert_eq!(OutboxFile::open(folder.file()).unwrap_err(), StoreError::InUse { path });
    first.close(Duration::ZERO).await.unwrap();
    let mut file = OutboxFile::open(folder.file()).unwrap();
    assert!(file.is_empty());
    let mut seen = 0;
    file.list(|_| {
        seen += 1;
        true
    })
    .unwrap();
    assert_eq!((seen, file.dead_len()), (0, 0));
}

#[tokio::test]
async fn many_that_make_the_file_at_once_end_up_with_one_file() {
    let (folder, balancer) = (Folder::new("many"), balancer());
    let opening = (0..8).map(|_| {
        Outbox::open(folder.file(), &balancer, async |message: Message<u64>| {
            Ok::<_, Failure<String>>(message.into_body())
        })
    });
    let opened = futures::future::join_all(opening).await;
    assert_eq!(opened.iter().filter(|outbox| outbox.is_ok()).count(), 1, "{opened:?}");
    assert!(
        opened.iter().flat_map(|outbox| outbox.as_ref().err()).all(|error| matches!(error, StoreError::InUse { .. }))
    );
}

#[tokio::test]
async fn what_is_no_outbox_is_not_opened() {
    let folder = Folder::new("none");
    fs::write(folder.file(), "this is a letter to the editor of the newspaper").unwrap();
    let error = OutboxFile::open(folder.file()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. } | StoreError::Io { .. }), "{error:?}");
    assert_eq!(fs::read(folder.file()).unwrap().len(), 47, "it was left as it was");
}

/// The file takes no more room than what is in it needs, even after a long outage.
#[tokio::test]
async fn an_empty_file_is_small_again() {
    let (folder, balancer) = (Folder::new("small"), balancer());
    let open = || {
        Outbox::open(folder.file(), &balancer, async |message: Message<String>| {
            Ok::<_, Failure<String>>(message.into_body().len())
        })
    };
    let outbox = open().await.unwrap();
    balancer.pause_all();
    let text = "x".repeat(10_000);
    for _ in 0..10 {
        outbox.put_all((0..200).map(|key| ("send", key, &text))).await.unwrap();
    }
    let full = fs::metadata(folder.file()).unwrap().len();
    assert!(full > 20_000_000, "{full}");
    balancer.resume_all();
    while !outbox.is_empty() {
        outbox.flush().await;
    }
    outbox.close(Duration::ZERO).await.unwrap();
    let empty = fs::metadata(folder.file()).unwrap().len();
    assert!(empty < 1_000_000, "{empty}");
}
