package org.apache.spark.shuffle.holdfast;

import org.apache.spark.ShuffleDependency;
import org.apache.spark.shuffle.BaseShuffleHandle;
import org.apache.spark.shuffle.holdfast.wire.Instance;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;

/**
 * What tasks need of a shuffle of Holdfast; the driver makes it and Spark sends it to them. Nothing in it is secret.
 *
 * <p>That a shuffle has a handle of this class is the decision that it did not fall back; it is never taken back. A manager that
 * extends ours may hand out one of a class of its own, made of ours.
 */
public class HoldfastShuffleHandle<K, V, C> extends BaseShuffleHandle<K, V, C> {
    private static final long serialVersionUID = 1L;

    private final Instance instance;
    private final boolean secure;
    private final ShuffleShape shape;
    private final boolean encrypted;
    private final FirstPlaces places;

    /** A shuffle of the application {@code instance}. */
    HoldfastShuffleHandle(
            int shuffle, ShuffleDependency<K, V, C> dependency, Instance instance, boolean secure, ShuffleShape shape, boolean encrypted,
            FirstPlaces places) {
        super(shuffle, dependency);
        this.instance = instance;
        this.secure = secure;
        this.shape = shape;
        this.encrypted = encrypted;
        this.places = places;
    }

    /** The same shuffle as {@code other}, for a class that adds something. */
    protected HoldfastShuffleHandle(HoldfastShuffleHandle<K, V, C> other) {
        this(other.shuffleId(), other.dependency(), other.instance, other.secure, other.shape, other.encrypted, other.places);
    }

    /** The key of one generation of this shuffle, for the masters: of whatever state of theirs. */
    public ShuffleKey key(int generation) {
        return new ShuffleKey(instance, shuffleId(), generation);
    }

    /** The key of the generation that statuses name. */
    ShuffleKey key(SyntheticLocation.Named named) {
        return key(named.generation()).withState(named.state());
    }

    /** The run of the application that owns the shuffle. */
    public Instance instance() {
        return instance;
    }

    /** Whether tasks need a token of the application. */
    public boolean secure() {
        return secure;
    }

    /** What it is registered with. */
    ShuffleShape shape() {
        return shape;
    }

    /** Where the first stage writes. */
    FirstPlaces places() {
        return places;
    }

    /** Whether {@code spark.io.encryption} was on when the shuffle was registered. */
    public boolean encrypted() {
        return encrypted;
    }
}
