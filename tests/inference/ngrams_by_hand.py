"""Tokens that would repeat an n-gram, by plain Python."""


def repeated_by_hand(tokens, size):
    """Next tokens with which the newest n tokens would be an n-gram that is there already."""
    newest = tokens[len(tokens) - size + 1 :] if size > 1 else []
    places = range(len(tokens) - size + 1)
    return {tokens[i + size - 1] for i in places if tokens[i : i + size - 1] == newest}
