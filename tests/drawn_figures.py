"""Looking at drawn figures: their texts, and whether anything is cut off."""

from matplotlib.text import Text


def texts(figure):
    """Every visible, non-empty text of a drawn figure."""
    figure.canvas.draw()
    found = figure.findobj(lambda a: hasattr(a, "get_text") and a.get_visible())
    return [text for text in found if text.get_text().strip()]


def words(figure):
    return [text.get_text() for text in texts(figure)]


def assert_nothing_cut_off(figure):
    """Texts lie on the canvas; tick labels out of view are never drawn."""
    drawn = texts(figure)
    width, height = figure.canvas.get_width_height()
    hidden = {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks()
        for label in (tick.label1, tick.label2)
        if not min(axis.get_view_interval()) - 1e-9
        <= tick.get_loc()
        <= max(axis.get_view_interval()) + 1e-9
    }
    for text in drawn:
        if text in hidden:
            continue
        box = text.get_window_extent()
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
        assert inside, (text.get_text(), box, (width, height))
    for axes in figure.axes:
        share = axes.get_window_extent().width / width
        assert share > 0.3 or axes is not figure.axes[0]  # labels leave it room


def overlapping(labels):
    boxes = [Text.get_window_extent(label) for label in labels]  # without leaders
    return any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
