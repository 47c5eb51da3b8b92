"""The report of open questions in a browser: answers side by side, counts that lead to cases, roles without colour."""

from __future__ import annotations

from urllib.parse import parse_qs

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from tests.browser.test_report import cards, one


def texts(driver: WebDriver, selector: str) -> list[str]:
    return [found.text for found in driver.find_elements(By.CSS_SELECTOR, selector)]


def test_a_card_shows_question_accepted_answers_the_arms_and_fulls(opened_open: WebDriver) -> None:
    card = cards(opened_open)[0]
    assert "?" in card.find_element(By.CSS_SELECTOR, ".quoted").text
    assert card.find_element(By.CSS_SELECTOR, ".accepted").text.startswith("Accepted: “")
    told = card.find_element(By.CSS_SELECTOR, ".facts").text
    assert "score" in told
    assert "loss" in told
    assert "Full: “" in told
    assert "cells left" in told
    assert "right without evidence" in told, "such answers come first"
    assert opened_open.get_log("browser") == []


def test_regions_have_letters_and_the_key_says_what_they_mean(opened_open: WebDriver) -> None:
    letters = set(texts(opened_open, "#gallery svg text"))
    key = texts(opened_open, "#answers .key li")
    assert letters == {"V", "L", "X", "A"}
    for letter, words in (("V", "the answer's value"), ("L", "label of the field"), ("X", "context")):
        assert any(line.replace("\n", " ").split(maxsplit=1) == [letter, words] for line in key), key


def test_filters_narrow_to_confident_wrong_answers(opened_open: WebDriver) -> None:
    one(opened_open, "[data-filter=confident]").click()
    assert cards(opened_open)
    assert all("confident and wrong" in card.text for card in cards(opened_open))
    one(opened_open, "[data-filter=flip]").click()
    assert all("other than Full's" in card.text for card in cards(opened_open))


def test_orders_put_the_surest_answer_first(opened_open: WebDriver) -> None:
    Select(one(opened_open, "#gallery-order")).select_by_value("loss")
    losses = [float(card.text.split("loss ")[1].split()[0]) for card in cards(opened_open)]
    assert losses == sorted(losses)


def test_a_count_leads_to_its_cases(opened_open: WebDriver) -> None:
    links = opened_open.find_elements(By.CSS_SELECTOR, "#table-changed_answers a[data-cases*='change=lost']")
    wanted = {str(found.get_attribute("data-cases")): found for found in links}
    asked, link = next((asked, found) for asked, found in wanted.items() if "evidence=" in asked)
    opened_open.execute_script("arguments[0].scrollIntoView()", link)
    opened_open.execute_script("arguments[0].click()", link)
    shown = cards(opened_open)
    assert 0 < len(shown) <= int(link.text)
    chosen = Select(one(opened_open, "#gallery-arm")).first_selected_option.text
    assert parse_qs(asked)["arm"] == [chosen]
    assert all(f"— {chosen}" in card.text for card in shown)
    assert "changed to wrong" in one(opened_open, "#gallery-found").text
    one(opened_open, "[data-filter=all]").click()
    assert "changed to wrong" not in one(opened_open, "#gallery-found").text


def test_counts_of_which_no_case_is_shown_are_no_links(opened_open: WebDriver) -> None:
    for cell in opened_open.find_elements(By.CSS_SELECTOR, "#table-changed_answers td.n"):
        if cell.text == "0":
            assert not cell.find_elements(By.TAG_NAME, "a")


def test_a_case_opens_with_every_arm_and_the_meaning_of_its_letters(opened_open: WebDriver) -> None:
    opened_open.execute_script("arguments[0].click()", cards(opened_open)[0])
    facts = one(opened_open, "#case-facts").text
    assert facts.startswith("Accepted: “")
    assert "the answer's value" in facts
    assert len(opened_open.find_elements(By.CSS_SELECTOR, "#case .panel")) == 10
    one(opened_open, "#case-zoom").click()
    assert opened_open.find_elements(By.CSS_SELECTOR, "#case .panel svg text")
    one(opened_open, "#case-close").click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_telephone_shows_no_sideways_page(opened_open: WebDriver, scheme: str) -> None:
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    opened_open.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    opened_open.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    assert opened_open.execute_script("return document.documentElement.scrollWidth") <= 400
    assert one(opened_open, "#scores .only-narrow").is_displayed()
    assert not one(opened_open, "#scores .only-wide").is_displayed()
