//! A Bot API on a port of the loopback.

use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{rt::TokioIo, server::graceful::GracefulShutdown};
use tokio::{
    net::TcpListener,
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::api::{Api, Conditions, Tally};

const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    api: Arc<Api>,
    stop: oneshot::Sender<()>,
    accepting: JoinHandle<()>,
}

impl Server {
    /// Listens on a free port of the loopback.
    pub(crate) async fn start(token: &str, conditions: Conditions) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let api = Arc::new(Api::new(token, conditions));
        let (stop, stopped) = oneshot::channel();
        let accepting = tokio::spawn(accept(listener, Arc::clone(&api), stopped));
        Ok(Self { address, api, stop, accepting })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn provoked(&self) -> usize {
        self.api.provoked()
    }

    /// Takes no more connections, finishes the calls in progress and says what has been seen.
    pub(crate) async fn stop(self) -> Tally {
        // Either of these fails only if the accepting task has ended already, which is what is wanted.
        let _ = self.stop.send(());
        let _ = self.accepting.await;
        self.api.tally()
    }
}

async fn accept(listener: TcpListener, api: Arc<Api>, mut stopped: oneshot::Receiver<()>) {
    let connections = GracefulShutdown::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of file handles, or the client went away in between: neither ends the server.
                Err(_) => {
                    sleep(Duration::from_millis(10)).await;
                    continue;
                }
            },
            _ = &mut stopped => break,
        };
        let api = Arc::clone(&api);
        let service = service_fn(move |request| {
            let api = Arc::clone(&api);
            async move { Ok::<_, Infallible>(api.answer(request).await) }
        });
        let connection = connections.watch(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        // A connection that breaks is its client's business.
        tokio::spawn(async move { drop(connection.await) });
    }
    drop(listener);
    let _ = timeout(SHUTDOWN_PATIENCE, connections.shutdown()).await;
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncReadExt, net::TcpStream};

    use super::*;

    #[tokio::test]
    async fn stopping_closes_idle_connections() {
        let server = Server::start("1:a", Conditions::usual(1)).await.unwrap();
        let mut idle = TcpStream::connect(server.address).await.unwrap();
        server.stop().await;
        let mut rest = Vec::new();
        let read = idle.read_to_end(&mut rest).await;
        assert!(read.is_err() || rest.is_empty());
    }
}
