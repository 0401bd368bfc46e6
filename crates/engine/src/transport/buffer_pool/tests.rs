use super::*;
use std::sync::mpsc;
use std::thread;

const CHUNK: u64 = CHUNK_BYTES as u64;

#[test]
fn allocate_beyond_guarantee_waits() {
    let pool = BufferPool::new(Some(Bytes::mib(64)));
    let share = pool.share();
    assert_eq!(pool.size(), Bytes(CHUNKS_PER_STREAM * CHUNK));
    let mut chunks: Vec<_> =
        (0..CHUNKS_PER_STREAM).map(|_| share.allocate(CHUNK_BYTES).unwrap()).collect();
    let (sender, allocated) = mpsc::channel();
    let other = Arc::clone(&share);
    let waiting = thread::spawn(move || sender.send(other.allocate(5).unwrap()).unwrap());
    assert!(allocated.recv_timeout(Duration::from_millis(30)).is_err());
    chunks.pop();
    assert_eq!(allocated.recv_timeout(Duration::from_secs(5)).unwrap().len(), 5);
    waiting.join().unwrap();
}

#[test]
fn limit_grows_while_disk_stalls_and_memory_is_returned() {
    let pool = BufferPool::new(Some(Bytes::mib(64)));
    let share = pool.share();
    share.on_starved();
    let (sender, queue) = mpsc::channel();
    let reader = Arc::clone(&share);
    let start = Instant::now();
    // A disk that writes each chunk at once, until it stalls.
    let disk = thread::spawn(move || {
        while start.elapsed() < 3 * EPOCH_INTERVAL {
            drop(queue.recv().unwrap());
        }
        thread::sleep(6 * EPOCH_INTERVAL);
        drop(queue);
    });
    let last_change = || pool.status().and_then(|status| status.change);
    let initial = last_change();
    assert_eq!(initial.map(|(_, reason)| reason), Some(Reason::Bound), "a stream was added");
    let mut max_size = Bytes(0);
    let mut reasons = Vec::new();
    while let Ok(chunk) = reader.allocate(CHUNK_BYTES) {
        max_size = max_size.max(pool.size());
        let change = last_change().filter(|&change| Some(change) != initial);
        reasons.extend(change.map(|(_, reason)| reason));
        if sender.send(chunk).is_err() {
            break;
        }
        thread::sleep(Duration::from_millis(2));
    }
    disk.join().unwrap();
    assert!(max_size > Bytes(4 * CHUNKS_PER_STREAM * CHUNK), "{max_size}");
    assert!(max_size <= Bytes::mib(48), "the rest is reserved: {max_size}");
    assert!(reasons.contains(&Reason::Discarded), "{reasons:?}");
    drop((reader, share));
    assert!(lock(&pool.state).is_none());
}

#[test]
fn full_pool_grants_each_stream_one_chunk() {
    let pool = BufferPool::new(Some(Bytes(8 * CHUNK)));
    let shares: Vec<_> = (0..10).map(|_| pool.share()).collect();
    let many: Vec<_> = (0..6).map(|_| shares[0].allocate(1)).collect();
    assert!(many.iter().all(Result::is_ok));
    // The reserve is left to streams with fewer chunks.
    let _others = [shares[1].allocate(1).unwrap(), shares[2].allocate(1).unwrap()];
    // The pool is full; each stream still gets one chunk, and no more.
    let _one = shares[9].allocate(1).unwrap();
    let (sender, allocated) = mpsc::channel();
    let last = Arc::clone(&shares[9]);
    let waiting = thread::spawn(move || sender.send(last.allocate(1).unwrap()).unwrap());
    assert!(allocated.recv_timeout(Duration::from_millis(30)).is_err());
    drop(many);
    allocated.recv_timeout(Duration::from_secs(5)).unwrap();
    waiting.join().unwrap();
}

#[test]
fn release_wakes_streams_that_can_allocate() {
    let pool = BufferPool::new(Some(Bytes(9 * CHUNK)));
    let [own, other, third] = [pool.share(), pool.share(), pool.share()];
    let woken = |waiting: &[&Arc<PoolShare>]| {
        let mut guard = lock(&pool.state);
        let state = guard.as_mut().unwrap();
        state.waiting = waiting.iter().map(|&share| Arc::clone(share)).collect();
        // At a time when no backlog is stalled.
        let woken: Vec<_> = state.shares_to_wake(&own, state.origin).map(Arc::as_ptr).collect();
        state.waiting.clear();
        woken
    };
    let [of_own, of_other] = [&own, &other].map(Arc::as_ptr);
    let allocate = |share: &Arc<PoolShare>, chunks| -> Vec<_> {
        (0..chunks).map(|_| share.allocate(1).unwrap()).collect()
    };
    let mut others = allocate(&other, 4);
    others.extend(allocate(&third, 2));
    let mut chunks = allocate(&own, 3);
    assert!(woken(&[&other, &third, &own]).is_empty(), "the pool is full");
    chunks.pop();
    assert_eq!(woken(&[&third, &other]), [Arc::as_ptr(&third)]);
    assert_eq!(woken(&[&other, &own]), [of_own, of_other]);
    // A stream with its guaranteed chunks and a running writer does not block others.
    others.truncate(5);
    others.extend(allocate(&other, 2));
    chunks.pop();
    assert_eq!(woken(&[&other, &third]), [Arc::as_ptr(&third)]);
    assert_eq!(woken(&[&other, &own]), [of_own]);
}

#[test]
fn tiny_limit_does_not_deadlock() {
    let pool = BufferPool::new(Some(Bytes(1)));
    let shares = [pool.share(), pool.share()];
    let threads = shares.map(|share| {
        thread::spawn(move || (0..1000).for_each(|_| drop(share.allocate(1).unwrap())))
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn released_memory_serves_a_lasting_backlog() {
    let pool = BufferPool::new(Some(Bytes::mib(256)));
    let _share = pool.share();
    let mut guard = lock(&pool.state);
    let state = guard.as_mut().unwrap();
    let spare = MAX_SPARE_BYTES / CHUNK;
    let mut max_spare = |peak: u64, used: u64| {
        state.epoch.max_used = Bytes(peak * CHUNK);
        state.used_bytes = used * CHUNK;
        state.max_spare() as u64
    };
    // Idle: the guaranteed chunks, and as many more as were in use.
    assert_eq!(max_spare(0, 0), CHUNKS_PER_STREAM);
    assert_eq!(max_spare(CHUNKS_PER_STREAM + 2, 0), CHUNKS_PER_STREAM + 2);
    assert_eq!(max_spare(1000, 0), CHUNKS_PER_STREAM + spare);
    // A backlog of 500 chunks takes what it has just released.
    assert_eq!(max_spare(500, 499), 1);
    assert_eq!(max_spare(500, 490), 10);
    assert_eq!(max_spare(500, 100), spare);
    state.used_bytes = 0;
}
