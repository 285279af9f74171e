/* Sweeps, restarts, rewinds: two partitions, a durable store and one in memory, and what the lock
 * server believes of them.
 *
 * One process; each step of the world is one d_step. Messages (a keep list, an upload, a release)
 * may arrive late and again. README.md says what is left out and what the variants are. */

/* Buckets of the pass, by the one partition that each of them is of. */
#ifndef BUCKETS_0
#define BUCKETS_0 2
#endif
#ifndef BUCKETS_1
#define BUCKETS_1 1
#endif
#define BUCKETS(p) (p == 0 -> BUCKETS_0 : BUCKETS_1)
#ifndef RESTARTS
#define RESTARTS 2 /* of the memory store */
#endif
#ifndef FAULTS
#define FAULTS 1   /* sessions that end */
#endif
/* A session's end costs two grants, a rewind all buckets and two grants. */
#define TOKENS (1 + BUCKETS_0 + BUCKETS_1 + 2 * FAULTS + RESTARTS * (BUCKETS_0 + BUCKETS_1 + 2))

#define LIVE 1
#define COMMITTED 2
#define VOID 3

#define DISK 1   /* the durable store; as a place also what the memory store wrote to its disk */
#define MEMORY 2

#define BIT(token) (1 << (token))
#define FINISHED (done[0] == BUCKETS_0 && done[1] == BUCKETS_1 && !rewinding)

/* The lock server. Token 0 is the initial version, which needs no place: I3 always holds for it. */
byte status[TOKENS];
bit partition[TOKENS];
byte base[TOKENS];
bool outlived[TOKENS];          /* a rewind: of a lower generation */
byte place[TOKENS];             /* of the version: 0 none */
byte place_life[TOKENS];        /* incarnation of the memory store; 0: written to its disk */
byte current[2], done[2], next_token = 1;
bool rewinding;
byte committed[2], committed_done[2]; /* the newest committed manifest; at first the start */
bool has_pending;
byte pending[2], pending_done[2];
byte registered = 1;            /* incarnation of the memory store, as registered */

/* The stores. */
int blobs[3];                   /* by store: tokens that can be read there */
int persisted;                  /* of the memory store's, those on its disk */
byte life = 1;                  /* its incarnation */

/* The trainer, and the network. */
byte steps[TOKENS];             /* buckets in the content of a version; 0 before it is trained */
byte stored_at[TOKENS];         /* the answer to the last upload: store ... */
byte stored_life[TOKENS];       /* ... and incarnation */
int uploads[3];                 /* by store: uploads that are, or were, on the way */
bool listed;                    /* a keep list is on the way */
int list_keep;
byte list_mark;

byte faults, restarts;
#if defined(REACH_REWIND) || defined(REACH_REWIND_TO_START)
byte rewinds;                   /* bit 0: to the start, bit 1: to a later manifest */
#endif

/* The live grants, at most two, as settle() finds them. */
byte older, newer;

hidden byte k, p;

#define SPENT 1                 /* token 0 is nobody's */
#define IN(tokens, t) (t == tokens[0] || t == tokens[1])
#define IS_ROOT(t) (IN(current, t) || IN(committed, t) || IN(pending, t))
#define READABLE(t) (t == 0 || (place[t] && (blobs[place[t]] & BIT(t))))
#define CHECK_PENDING (life != registered)
#define CAN_BE_LOST(t) (place[t] == MEMORY && place_life[t])

/* Ends every step: forgets what nobody will look at again, then the invariants. */
inline settle() {
  d_step {
    older = 0; newer = 0;
    for (k : 1 .. TOKENS - 1) {
      if
      :: status[k] == LIVE && older -> newer = k
      :: status[k] == LIVE && !older -> older = k
      :: else
      fi;
      if
      :: status[k] != LIVE && !IS_ROOT(k) ->
           /* Garbage for ever: whether its blob is still there, or comes late, plays no role. */
           blobs[DISK] = blobs[DISK] & ~BIT(k);
           blobs[MEMORY] = blobs[MEMORY] & ~BIT(k);
           persisted = persisted & ~BIT(k);
           place[k] = 0; place_life[k] = 0; steps[k] = 0
      :: else
      fi;
      if
      :: status[k] != LIVE ->
           partition[k] = 0; base[k] = 0; outlived[k] = false; stored_at[k] = 0; stored_life[k] = 0;
           uploads[DISK] = uploads[DISK] & ~BIT(k);
           uploads[MEMORY] = uploads[MEMORY] & ~BIT(k)
      :: else
      fi
    }
#ifndef SWEEP_WITHOUT_MARK
    /* A list that keeps all that is not garbage, up to its mark, never deletes anything else: the
     * rest is garbage for ever, and what comes is above the mark. */
    if
    :: listed && !(list_keep & SPENT) ->
         k = 1;
         do
         :: k <= list_mark && (status[k] != LIVE && !IS_ROOT(k) || (list_keep & BIT(k))) -> k++
         :: k > list_mark -> list_keep = SPENT; list_mark = 0; break
         :: else -> break
         od
    :: else
    fi;
#endif
    for (p : 0 .. 1) {
      /* I2 */
      assert(steps[current[p]] == done[p]);
      /* I3: within a generation nothing is lost without the lock server getting to know of it. */
      assert(READABLE(current[p]) || CHECK_PENDING && CAN_BE_LOST(current[p]));
      assert(READABLE(committed[p]));
      assert(READABLE(pending[p]) || CHECK_PENDING && CAN_BE_LOST(pending[p]));
      /* I4 */
      assert(current[p] == 0 || status[current[p]] == COMMITTED)
    }
#ifdef REACH_PASS
    assert(!FINISHED);
#endif
#ifdef REACH_REWIND
    assert(!FINISHED || !(rewinds & 2));
#endif
#ifdef REACH_REWIND_TO_START
    assert(!FINISHED || !(rewinds & 1));
#endif
#ifdef REACH_EXPIRY
    assert(!FINISHED || !faults);
#endif
    skip
  }
}

inline void_all() {
  for (k : 1 .. TOKENS - 1) {
    if
    :: status[k] == LIVE -> status[k] = VOID
    :: else
    fi
  };
  skip /* a d_step must not end in a loop */
}

/* The next grant: at most two live, the second one perhaps from what is just being stored. */
#define PREDECESSOR(p) (older && partition[older] == p)
inline grant(p) {
  d_step {
    !rewinding && !newer && done[p] + (PREDECESSOR(p) -> 1 : 0) < BUCKETS(p) ->
    assert(next_token < TOKENS);
    status[next_token] = LIVE;
    partition[next_token] = p;
    base[next_token] = (PREDECESSOR(p) -> older : current[p]);
    next_token++
  }
}

/* Trained in memory: on the predecessor that is still there, or on the version as read. */
inline train(t) {
  d_step {
    t && steps[t] == 0 &&
      (base[t] == 0 || (status[base[t]] == LIVE -> steps[base[t]] : READABLE(base[t]))) ->
    steps[t] = steps[base[t]] + 1
  }
}

/* PutBlob, and its answer. The copy in the trainer's memory stays, so it can be stored again. */
inline upload(t, store) {
  d_step {
    t && steps[t] && stored_at[t] == 0 ->
    uploads[store] = uploads[store] | BIT(t);
    blobs[store] = blobs[store] | BIT(t);
    stored_at[t] = store;
    stored_life[t] = (store == MEMORY -> life : 0)
  }
}

/* The same upload arrives again. */
inline late_upload(t, store) {
  d_step {
    t && (uploads[store] & BIT(t)) && !(blobs[store] & BIT(t)) ->
    blobs[store] = blobs[store] | BIT(t)
  }
}

/* ReleaseBucket. A place that is gone: FailedPrecondition, the grant lives, store again. A place
 * that is not registered yet is refused too, and stored again as it is: no step for that. */
#define WORTH_SENDING(t) (stored_life[t] <= registered)
inline release(t) {
  d_step {
    t && stored_at[t] && WORTH_SENDING(t) ->
    p = partition[t];
    if
    :: base[t] != current[p] ->
#ifndef REWIND_KEEPS_GRANTS
         assert(false);  /* sessions and rewinds that end all grants leave nothing to refuse */
#endif
         void_all()
#ifndef RELEASE_IGNORES_INCARNATION
    :: base[t] == current[p] && stored_life[t] && stored_life[t] != registered ->
         stored_at[t] = 0; stored_life[t] = 0
#endif
    :: else ->
         assert(!outlived[t]); /* I10 */
         k = t;
         status[k] = COMMITTED;
         current[p] = k;
         done[p]++;
         place[k] = stored_at[k];
         place_life[k] = stored_life[k]
    fi
  }
}

inline end_session() {
  d_step {
    faults < FAULTS && older ->
    faults++;
    void_all()
  }
}

/* A keep list, made at any instant. A list alone is harmful or harmless, so one will do. */
inline make_list() {
  d_step {
    !listed && next_token > 1 && !FINISHED ->
    listed = true;
    list_keep = BIT(current[0]) | BIT(current[1]) | BIT(committed[0]) | BIT(committed[1]);
#ifndef SWEEP_WITHOUT_PENDING
    list_keep = list_keep | BIT(pending[0]) | BIT(pending[1]);
#endif
#ifndef SWEEP_WITHOUT_GRANTS
    for (k : 1 .. TOKENS - 1) {
      if
      :: status[k] == LIVE -> list_keep = list_keep | BIT(k)
      :: else
      fi
    }
#endif
    list_keep = list_keep & ~SPENT;
    list_mark = next_token - 1
  }
}

#ifdef SWEEP_WITHOUT_MARK
#define SWEPT(store) (blobs[store] & ~list_keep)
#else
#define SWEPT(store) (blobs[store] & ~list_keep & (BIT(list_mark + 1) - 1))
#endif
inline sweep(store) {
  d_step {
    listed && !(list_keep & SPENT) && SWEPT(store) ->
    if
    :: store == MEMORY -> persisted = persisted & ~SWEPT(MEMORY)
    :: else
    fi;
    blobs[store] = blobs[store] & ~SWEPT(store)
  }
}

/* A manifest at any instant: pending ... */
inline begin_manifest() {
  d_step {
    !rewinding && !has_pending && (current[0] != committed[0] || current[1] != committed[1]) ->
    has_pending = true;
    for (p : 0 .. 1) { pending[p] = current[p]; pending_done[p] = done[p] }
    skip
  }
}

/* ... the memory store writes its blobs to disk, and says so in its next call ... */
inline persist(p) {
  d_step {
    place[pending[p]] == MEMORY && (blobs[MEMORY] & BIT(pending[p]) & ~persisted) ->
    persisted = persisted | BIT(pending[p])
  }
}

inline report_persisted(p) {
  d_step {
    CAN_BE_LOST(pending[p]) && (persisted & BIT(pending[p])) ->
    place_life[pending[p]] = 0
  }
}

/* ... and when its versions cannot get lost any more, it is committed; the older one goes. */
#ifdef COMMIT_UNPERSISTED
#define SAFE(t) true
#else
#define SAFE(t) (!CAN_BE_LOST(t))
#endif
inline drop_pending() {
  has_pending = false;
  pending[0] = 0; pending[1] = 0; pending_done[0] = 0; pending_done[1] = 0
}

inline commit_manifest() {
  d_step {
    has_pending && SAFE(pending[0]) && SAFE(pending[1]) ->
    for (p : 0 .. 1) { committed[p] = pending[p]; committed_done[p] = pending_done[p] }
    drop_pending()
  }
}

/* The memory store dies and comes back with what is on its disk. */
inline restart_store() {
  d_step {
    restarts < RESTARTS && !FINISHED ->
    restarts++;
    life++;
    blobs[MEMORY] = persisted
  }
}

/* It registers: in one write its volatile places go, and if the current version had no other, the
 * run is rewound. */
#ifdef REGISTER_KEEPS_PLACES
#define DROP_PLACE(t) skip
#else
#define DROP_PLACE(t) place[t] = 0; place_life[t] = 0
#endif
#define LOST(t) (t && place[t] == 0)
inline register_store() {
  d_step {
    CHECK_PENDING ->
    registered = life;
    for (k : 1 .. TOKENS - 1) {
      if
      :: CAN_BE_LOST(k) -> DROP_PLACE(k)
      :: else
      fi
    }
    if
    :: LOST(pending[0]) || LOST(pending[1]) -> drop_pending()
    :: else
    fi;
    if
    :: LOST(current[0]) || LOST(current[1]) ->
         rewinding = true;
#if defined(REACH_REWIND) || defined(REACH_REWIND_TO_START)
         rewinds = rewinds | (committed[0] || committed[1] -> 2 : 1);
#endif
#ifdef REWIND_KEEPS_GRANTS
         outlived[older] = true; outlived[newer] = true;
#else
         void_all();
#endif
         for (p : 0 .. 1) { current[p] = committed[p]; done[p] = committed_done[p] }
         drop_pending()
    :: else
    fi
  }
}

/* All parameter servers have restored. */
inline end_rewind() {
  d_step {
    rewinding ->
    rewinding = false
  }
}

init {
  do
  :: FINISHED -> break
  :: atomic {
       if
       :: grant(0)
       :: grant(1)
       :: train(older)
     :: upload(older, DISK)
     :: upload(older, MEMORY)
     :: late_upload(older, DISK)
     :: late_upload(older, MEMORY)
     :: train(newer)
     :: upload(newer, DISK)
     :: upload(newer, MEMORY)
     :: late_upload(newer, DISK)
     :: late_upload(newer, MEMORY)
     :: release(older)
     :: end_session()
       :: make_list()
       :: sweep(DISK)
       :: sweep(MEMORY)
       :: begin_manifest()
       :: persist(0)
       :: persist(1)
       :: report_persisted(0)
       :: report_persisted(1)
       :: commit_manifest()
       :: restart_store()
       :: register_store()
       :: end_rewind()
       fi;
       settle()
     }
  od
}
