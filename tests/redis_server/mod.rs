//! A Redis server of a test's own: on a free port of the loopback, with a folder of its own, gone with its value.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running server.
pub(crate) struct RedisServer {
    child: Child,
    folder: PathBuf,
    /// Its port.
    pub(crate) port: u16,
}

impl RedisServer {
    /// Starts one.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one with more options.
    pub(crate) fn start_with(more: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = std::env::temp_dir().join(format!("request-balancer-redis-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut server = Self { child: spawn(&folder, port, more), folder, port };
        server.await_up();
        server
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its process.
    #[allow(dead_code, reason = "not every test stops it")]
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, as a machine does that fails.
    #[allow(dead_code, reason = "not every test kills it")]
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it anew, with nothing in it.
    #[allow(dead_code, reason = "not every test kills it")]
    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.folder, self.port, &[]);
        self.await_up();
    }

    fn await_up(&mut self) {
        for _ in 0..500 {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("redis-server ended at once: {status}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("redis-server does not listen on port {}", self.port);
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn spawn(folder: &PathBuf, port: u16, more: &[&str]) -> Child {
    let port = port.to_string();
    for program in ["valkey-server", "redis-server"] {
        let mut command = Command::new(program);
        command
            .args([
                "--port",
                &port,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
                "--enable-debug-command",
                "local",
                "--dir",
            ])
            .arg(folder)
            .args(more);
        if let Ok(child) = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            return child;
        }
    }
    panic!("found neither valkey-server nor redis-server; install one: apt-get install redis-server");
}
